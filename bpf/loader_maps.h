/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Maps of programs' files and of libraries that loaders map. */
#pragma once

/* Programs whose dynamic loader is probed -> CLOCK_BOOTTIME at which that was seen; written
 * by user space. LRU; an evicted entry costs another notice. */
GP_MAP(known_images, LRU_HASH, 16384, struct gp_image, __u64);

struct gp_loader {
	__u64 tail; /* last link-map entry that was read */
	char path[GP_PATH_LEN];
};

/* tgid -> position in its list of loaded libraries. LRU; an evicted entry costs another
 * walk from the head. */
GP_MAP(loaders, LRU_HASH, 4096, __u32, struct gp_loader);

/* tgid -> time of the pending notice that it has mapped a library; removed by user
 * space just before the scan. LRU; an evicted entry costs another notice. */
GP_MAP(noticed, LRU_HASH, 4096, __u32, __u64);
