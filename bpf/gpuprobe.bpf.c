// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/* The BPF programs. Each is a thin wrapper; user space loads one of the three families
 * that can attach to functions, depending on the kernel (src/probe/kind.rs). */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wsign-compare"
#include <bpf/usdt.bpf.h>
#pragma clang diagnostic pop

#include "abi.h"
#include "limits.h"
#include "maps.h"
#include "kernel.h"
#include "values.h"
#include "losses.h"
#include "records.h"
#include "threads.h"
#include "costs.h"
#include "contexts.h"
#include "launches.h"
#include "copies.h"
#include "paths.h"
#include "stack_hash.h"
#include "python.h"
#include "python_walk.h"
#include "python_code.h"
#include "stacks.h"
#include "tensors.h"
#include "checkpoints.h"
#include "calls.h"
#include "returns.h"
#include "tasks.h"
#include "loader.h"
#include "batches.h"
#include "kernel_stack.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Linux 7.0 added an argument to the kfunc. A declaration of the wrong prototype
 * silently resolves to nothing, so both are declared and the one that exists is called;
 * libbpf drops the suffix after the triple underscore. */
extern bool bpf_session_is_return___old(void) __ksym __weak;
extern bool bpf_session_is_return___new(void *ctx) __ksym __weak;

static __always_inline bool gp_is_return(struct pt_regs *ctx)
{
	if (bpf_ksym_exists(bpf_session_is_return___new))
		return bpf_session_is_return___new(ctx);
	if (bpf_ksym_exists(bpf_session_is_return___old))
		return bpf_session_is_return___old();
	return false;
}

SEC("uprobe.session")
int call_session(struct pt_regs *ctx)
{
	gp_keep_kernel_stack(ctx, &session_programs);
	if (!gp_is_return(ctx))
		return gp_enter(ctx, bpf_get_attach_cookie(ctx));
	gp_return(ctx, bpf_get_attach_cookie(ctx));
	return 0;
}

/* A program for each of the two ways to attach to many functions, and to one. */
#define GP_PROGRAMS_OF(name, section, ...)                                                         \
	SEC(section ".multi")                                                                      \
	int name##_multi(struct pt_regs *ctx)                                                      \
	{                                                                                          \
		gp_keep_kernel_stack(ctx, &multi_programs);                                        \
		__VA_ARGS__;                                                                       \
		return 0;                                                                          \
	}                                                                                          \
	SEC(section)                                                                               \
	int name##_perf(struct pt_regs *ctx)                                                       \
	{                                                                                          \
		gp_keep_kernel_stack(ctx, &perf_programs);                                         \
		__VA_ARGS__;                                                                       \
		return 0;                                                                          \
	}

GP_PROGRAMS_OF(call_entry, "uprobe", gp_enter(ctx, bpf_get_attach_cookie(ctx)))
GP_PROGRAMS_OF(call_return, "uretprobe", gp_return(ctx, bpf_get_attach_cookie(ctx)))
GP_PROGRAMS_OF(launch, "uprobe", gp_on_launch(ctx, bpf_get_attach_cookie(ctx)))
GP_PROGRAMS_OF(entry, "uprobe", gp_on_entry(ctx, bpf_get_attach_cookie(ctx)))
GP_PROGRAMS_OF(tensor, "uprobe", gp_on_tensor(ctx, bpf_get_attach_cookie(ctx)))
GP_PROGRAMS_OF(rendezvous, "uprobe", gp_on_rendezvous(ctx, bpf_get_attach_cookie(ctx)))
GP_PROGRAMS_OF(batch, "uprobe", gp_on_batch(ctx))
GP_PROGRAMS_OF(code_gone, "uprobe", gp_on_code_freed())

SEC("usdt")
int tensor_request(struct pt_regs *ctx)
{
	gp_keep_kernel_stack(ctx, &usdt_programs);
	gp_on_request(ctx);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int task_exit(struct bpf_raw_tracepoint_args *ctx)
{
	gp_on_exit((struct task_struct *)ctx->args[0]);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int task_exec(struct bpf_raw_tracepoint_args *ctx)
{
	gp_on_exec((struct task_struct *)ctx->args[0], (__u32)ctx->args[1],
		   (struct linux_binprm *)ctx->args[2]);
	return 0;
}

SEC("raw_tp/sched_process_fork")
int task_fork(struct bpf_raw_tracepoint_args *ctx)
{
	gp_on_fork((struct task_struct *)ctx->args[0], (struct task_struct *)ctx->args[1]);
	return 0;
}

SEC("raw_tp/task_rename")
int task_rename(struct bpf_raw_tracepoint_args *ctx)
{
	gp_on_rename((struct task_struct *)ctx->args[0], (const char *)ctx->args[1]);
	return 0;
}
