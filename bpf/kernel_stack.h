/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Programs on functions run on the kernel's stack.
 *
 * Since Linux 6.13 (x86-64; later on arm64), a program of a type for which the kernel skips a run
 * within another run on the same processor may have a stack that all its runs on a processor share
 * (bpf_enable_priv_stack() in the kernel's verifier). Programs on functions of user space have that
 * type, but none of their runs is skipped: where the kernel can be preempted, a thread that is
 * preempted within a program goes on with what another thread has left on that stack. A program
 * that has a tail call is not given one. The verifier sees that this one is never made and removes
 * it. */
#pragma once

const volatile bool makes_tail_calls;

/* Programs that share an array must be of one type and attach type. */
GP_MAP(session_programs, PROG_ARRAY, 1, __u32, __u32);
GP_MAP(multi_programs, PROG_ARRAY, 1, __u32, __u32);
GP_MAP(perf_programs, PROG_ARRAY, 1, __u32, __u32);
GP_MAP(usdt_programs, PROG_ARRAY, 1, __u32, __u32);

static __always_inline void gp_keep_kernel_stack(void *ctx, void *programs)
{
	if (makes_tail_calls)
		bpf_tail_call(ctx, programs, 0);
}
