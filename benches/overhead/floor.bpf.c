// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/* Empty programs: the minimum cost of any tracer. The benchmarks compare against them. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe.session")
int floor_session(void *ctx __attribute__((unused)))
{
	return 0;
}

SEC("uprobe.multi")
int floor_entry(void *ctx __attribute__((unused)))
{
	return 0;
}

SEC("uretprobe.multi")
int floor_return(void *ctx __attribute__((unused)))
{
	return 0;
}
