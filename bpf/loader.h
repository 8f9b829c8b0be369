/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The dynamic loader's debugger interface. ld.so and musl call _dl_debug_state, an
 * empty function, whenever the list of loaded libraries has changed, before the new
 * ones run any code; the head of the list is in _r_debug, with the layout of <link.h>.
 * A probe there sees each new library of every process, and costs nothing while no
 * library is loaded. */
#pragma once

struct gp_r_debug {
	__s32 version;
	__s32 padding;
	__u64 map;
	__u64 brk;
	__s32 state;
	__s32 padding2;
};
enum { GP_RT_CONSISTENT, GP_RT_ADD, GP_RT_DELETE };

struct gp_link_map {
	__u64 address;
	__u64 name;
	__u64 dynamic;
	__u64 next;
};

struct gp_loader no_loader;
const struct gp_image no_image;

/* Whether the base name at `start` of the path begins with `wanted`. Without a branch
 * per character, of which the verifier would follow every combination. */
#define gp_begins_with(path, start, wanted)                                                        \
	({                                                                                         \
		const char name[] = wanted;                                                        \
		__u32 differs = 0;                                                                 \
		for (__u32 i = 0; i < sizeof(name) - 1; i++)                                       \
			differs |= (path)[((start) + i) & (GP_PATH_LEN - 1)] ^ name[i];            \
		differs == 0;                                                                      \
	})

/* Whether the base name at `start` of the path that was read is that of a probed library:
 * it begins with "libcuda" (libcuda.so.1, libcudart.so.12, libcudart-d0da41ae.so.11.0), for the
 * ledger with "libcu" or "libnccl" (libcublas, libcufft), with tensors "libc10",
 * "libtensorflow_f", "xla_cuda", "librmm", "memory.cpython" (CuPy's), "libonnxruntime.so" or
 * "onnxruntime_p", or, with Python frames, "libpython". */
__noinline int gp_is_probed_name(struct gp_loader *loader, __u32 start)
{
	if (!loader)
		return 0;
	return gp_begins_with(loader->path, start, "libcuda") ||
	       (keep_ledger && (gp_begins_with(loader->path, start, "libcu") ||
				gp_begins_with(loader->path, start, "libnccl"))) ||
	       (take_tensors && (gp_begins_with(loader->path, start, "libc10") ||
				 gp_begins_with(loader->path, start, "libtensorflow_f") ||
				 gp_begins_with(loader->path, start, "xla_cuda") ||
				 gp_begins_with(loader->path, start, "librmm") ||
				 gp_begins_with(loader->path, start, "memory.cpython") ||
				 gp_begins_with(loader->path, start, "libonnxruntime.so") ||
				 gp_begins_with(loader->path, start, "onnxruntime_p"))) ||
	       (take_python && gp_begins_with(loader->path, start, "libpython"));
}

/* Whether the path at user address `name` ends, or may end, in such a base name. */
__noinline int gp_is_probed_library(struct gp_loader *loader, __u64 name)
{
	__u32 start;
	long length;

	if (!loader)
		return 0;
	length = bpf_probe_read_user_str(loader->path, GP_PATH_LEN, (void *)name);
	if (length <= 1)
		return 0;
	/* The path was truncated with its base name: user space has to check it. */
	if (length == GP_PATH_LEN)
		return 1;
	start = length - 1;
	for (int i = 0; i < GP_BASENAME_LEN && start > 0; i++) {
		if (loader->path[(start - 1) & (GP_PATH_LEN - 1)] == '/')
			break;
		start--;
	}
	return gp_is_probed_name(loader, start);
}

/* A notice that was not processed after this time may have been lost. */
#define GP_NOTICE_TIMEOUT_NS (3ull * 1000 * 1000 * 1000)

/* Whether a notice of this process is pending, so that user space will see all current
 * mappings: a program that calls _dl_debug_state in a loop would leave no room for
 * other notices. A notice about a stopped process is always sent. */
static __always_inline bool gp_notice_is_pending(__u32 tgid, __u64 now)
{
	__u64 *since = hold_targets ? NULL : bpf_map_lookup_elem(&noticed, &tgid);

	return since && now - *since < GP_NOTICE_TIMEOUT_NS;
}

/* Sends a notice that this process has mapped a library. */
static __always_inline void gp_notice_library(__u32 tgid)
{
	__u64 now = bpf_ktime_get_ns();

	if (gp_notice_is_pending(tgid, now))
		return;
	/* Before the notice, because user space may remove it at once. */
	bpf_map_update_elem(&noticed, &tgid, &now, BPF_ANY);
	if (!gp_send_notice(GP_RECORD_NEW_LIBRARY, tgid, &no_image))
		bpf_map_delete_elem(&noticed, &tgid);
}

/* `delta`: distance from _dl_debug_state to _r_debug, the attach cookie. */
static __always_inline void gp_on_rendezvous(struct pt_regs *ctx, __s64 delta)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct gp_r_debug debug = {};
	struct gp_link_map link = {};
	struct gp_loader *loader;
	int probed = 0;
	__u64 next;
	int i;

	if (!gp_is_target(tgid))
		return;
	if (bpf_probe_read_user(&debug, sizeof(debug), (void *)(PT_REGS_IP(ctx) + delta)))
		return;
	loader = gp_get_or_insert(&loaders, &tgid, &no_loader);
	if (!loader || debug.state == GP_RT_ADD)
		return;
	if (debug.state == GP_RT_DELETE) {
		loader->tail = 0; /* it may be about to be freed */
		return;
	}
	next = debug.map;
	if (loader->tail && !bpf_probe_read_user(&link, sizeof(link), (void *)loader->tail))
		next = link.next;
	for (i = 0; i < GP_MAX_LINKS && next; i++) {
		if (bpf_probe_read_user(&link, sizeof(link), (void *)next))
			break;
		loader->tail = next;
		next = link.next;
		probed |= gp_is_probed_library(loader, link.name);
	}
	/* Nothing new in this list: another namespace (dlmopen) has changed. */
	if (probed || next || i == 0)
		gp_notice_library(tgid);
}
