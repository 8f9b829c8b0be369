/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Identification of the called function on kernels without attach cookies (before
 * 5.15). The instruction pointer is not sufficient: the library has another address in
 * each process. But while a program runs, the kernel keeps the data that it is about to
 * pass to perf: the probe, with the path and offset that it was created with. The path
 * names one of gpuprobe's descriptors, which are unique per file. */
#ifndef GPUPROBE_OFFSETS_H
#define GPUPROBE_OFFSETS_H

/* Common prefix of the paths of all probes. */
#define GP_PROBED_PREFIX_BYTES (sizeof("/proc/self/fd/") - 1)

/* The cookie of the probe that has fired; false if it is not gpuprobe's. */
static __always_inline bool gp_cookie_by_offset(__u64 *cookie)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct uprobe_dispatch_data *firing = (void *)BPF_CORE_READ(task, utask, vaddr);
	struct trace_uprobe *probe = BPF_CORE_READ(firing, tu);
	const char *path = BPF_CORE_READ(probe, filename);
	struct gp_probed probed = {.offset = BPF_CORE_READ(probe, offset)};
	__u64 *found;

	bpf_probe_read_kernel_str(probed.descriptor, sizeof(probed.descriptor),
				  path + GP_PROBED_PREFIX_BYTES);
	found = bpf_map_lookup_elem(&cookies, &probed);
	if (!found)
		return false;
	*cookie = *found;
	return true;
}

#endif /* GPUPROBE_OFFSETS_H */
