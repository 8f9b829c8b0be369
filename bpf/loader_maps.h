/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Maps of programs' files and of libraries that loaders map. */
#ifndef GPUPROBE_LOADER_MAPS_H
#define GPUPROBE_LOADER_MAPS_H

/* Programs whose dynamic loader is probed -> CLOCK_BOOTTIME at which that was seen; written
 * by user space. LRU; an evicted entry costs another notice. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct gp_image);
	__type(value, __u64);
} known_images SEC(".maps");

struct gp_loader {
	__u64 tail; /* last link-map entry that was read */
	char path[GP_PATH_LEN];
};

/* tgid -> position in its list of loaded libraries. LRU; an evicted entry costs another
 * walk from the head. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct gp_loader);
} loaders SEC(".maps");

/* tgid -> time of the pending notice that it has mapped a library; removed by user
 * space just before the scan. LRU; an evicted entry costs another notice. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} noticed SEC(".maps");

#endif /* GPUPROBE_LOADER_MAPS_H */
