/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What allocators of frameworks hand out. PyTorch's calls a function for each block,
 * with its sums, which does nothing unless somebody profiles; and where its USDT probes
 * are compiled in, these say what was asked for, right after that. There are hundreds
 * of thousands in a second: what is no use is not done.
 */
#ifndef GPUPROBE_TENSORS_H
#define GPUPROBE_TENSORS_H

/* c10::DeviceType::CUDA */
#define GP_TORCH_CUDA 1

/* Memory calls come first: the ring is never full of tensors. The flags to submit with,
 * or -1 if there is no room. */
static __always_inline __s64 gp_tensor_flags(void)
{
	__u64 waiting = bpf_ringbuf_query(&memory_ring, BPF_RB_AVAIL_DATA);

	if (waiting < wake_bytes || wake_pending[GP_RING_MEMORY]) {
		if (waiting < GP_TENSOR_BYTES)
			return BPF_RB_NO_WAKEUP;
		return -1;
	}
	wake_pending[GP_RING_MEMORY] = 1;
	return BPF_RB_FORCE_WAKEUP;
}

/* Sends a tensor that is handed out, or, with negative bytes, taken back, as the arguments
 * of the function say. */
static __always_inline void gp_send_tensor(struct pt_regs *ctx, struct gp_thread *thread,
					   __u32 row, __u32 tid, __u64 stack)
{
	__s64 flags = gp_tensor_flags();
	struct gp_tensor *tensor = NULL;

	gp_announce(thread);
	if (flags >= 0)
		tensor = bpf_ringbuf_reserve(&memory_ring, sizeof(*tensor), 0);
	if (!tensor) {
		gp_count(tensors);
		return;
	}
	tensor->type = GP_RECORD_TENSOR;
	tensor->row = row;
	tensor->device = PT_REGS_PARM5(ctx) >> 8 & 0xff;
	tensor->reserved = 0;
	tensor->tgid = thread->tgid;
	tensor->tid = tid;
	tensor->time_ns = bpf_ktime_get_ns();
	tensor->address = PT_REGS_PARM1(ctx);
	tensor->bytes = PT_REGS_PARM2(ctx);
	tensor->allocated = PT_REGS_PARM3(ctx);
	tensor->held = PT_REGS_PARM4(ctx);
	tensor->stack = stack;
	thread->tensor = PT_REGS_PARM1(ctx);
	bpf_ringbuf_submit(tensor, flags);
}

/* Whether nobody wants to know where the function is called, which is sent then. */
static __always_inline bool gp_is_done_with_tensor(struct pt_regs *ctx, __u32 row, __u64 pid_tgid)
{
	struct gp_thread *thread;

	if ((PT_REGS_PARM5(ctx) & 0xff) != GP_TORCH_CUDA)
		return true;
	if (stack_mode != GP_STACKS_OFF && (__s64)PT_REGS_PARM2(ctx) >= 0)
		return false;
	thread = gp_thread_of(pid_tgid);
	if (thread)
		gp_send_tensor(ctx, thread, row, (__u32)pid_tgid, 0);
	else if (gp_is_target(pid_tgid >> 32))
		gp_count(tensors);
	return true;
}

/* `pytorch:malloc`: address, device, bytes that were asked for, stream. It follows the
 * tensor, on the same thread. */
static __always_inline void gp_on_request(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid;
	struct gp_thread *thread = bpf_map_lookup_elem(&threads, &tid);
	struct gp_request *request = NULL;
	long bytes = 0, stream = 0;
	__s64 flags;

	if (!thread || !thread->tensor)
		return;
	if (bpf_usdt_arg(ctx, 2, &bytes) || bpf_usdt_arg(ctx, 3, &stream)) {
		gp_count(tensors);
		return;
	}
	flags = gp_tensor_flags();
	if (flags >= 0)
		request = bpf_ringbuf_reserve(&memory_ring, sizeof(*request), 0);
	if (!request) {
		gp_count(tensors);
		return;
	}
	request->type = GP_RECORD_REQUEST;
	request->reserved = 0;
	request->tgid = thread->tgid;
	request->address = thread->tensor;
	request->bytes = bytes;
	request->stream = stream;
	bpf_ringbuf_submit(request, flags);
}

#endif /* GPUPROBE_TENSORS_H */
