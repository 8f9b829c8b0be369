/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What allocators of frameworks hand out. PyTorch's calls an empty-handed function for
 * each block, with its sums; and where its USDT probes are compiled in, these say
 * what was asked for, right after that.
 */
#ifndef GPUPROBE_TENSORS_H
#define GPUPROBE_TENSORS_H

/* Whether it is a tensor at a GPU, and not in the host's memory. */
static __always_inline bool gp_is_tensor(struct gp_frame *frame)
{
	const __u8 type_cuda = 1;

	return (frame->device & 0xff) == type_cuda;
}

/* Sends the tensor that `frame` is about. Memory calls come first: the ring is never full
 * of tensors. */
static __always_inline void gp_send_tensor(struct gp_thread *thread, struct gp_frame *frame,
					   __u32 tid)
{
	struct gp_tensor *tensor = NULL;

	gp_announce(thread);
	if (gp_has_room())
		tensor = bpf_ringbuf_reserve(&memory_ring, sizeof(*tensor), 0);
	if (!tensor) {
		gp_count(tensors);
		return;
	}
	tensor->type = GP_RECORD_TENSOR;
	tensor->row = frame->row;
	tensor->device = frame->device >> 8 & 0xff;
	tensor->reserved = 0;
	tensor->tgid = thread->tgid;
	tensor->tid = tid;
	tensor->time_ns = frame->start_ns;
	tensor->address = frame->address;
	tensor->bytes = frame->size;
	tensor->allocated = frame->out;
	tensor->held = frame->stream;
	tensor->stack = frame->stack;
	gp_submit_memory(tensor);
}

/* `pytorch:malloc`: address, device, bytes that were asked for, stream. */
static __always_inline void gp_on_request(struct pt_regs *ctx)
{
	struct gp_thread *thread = gp_thread_of(bpf_get_current_pid_tgid());
	long address = 0, device = 0, bytes = 0, stream = 0;
	struct gp_request *request = NULL;

	if (!thread)
		return;
	if (bpf_usdt_arg(ctx, 0, &address) || bpf_usdt_arg(ctx, 1, &device) ||
	    bpf_usdt_arg(ctx, 2, &bytes) || bpf_usdt_arg(ctx, 3, &stream)) {
		gp_count(tensors);
		return;
	}
	gp_announce(thread);
	if (gp_has_room())
		request = bpf_ringbuf_reserve(&memory_ring, sizeof(*request), 0);
	if (!request) {
		gp_count(tensors);
		return;
	}
	request->type = GP_RECORD_REQUEST;
	request->device = device & 0xff;
	request->tgid = thread->tgid;
	request->tid = (__u32)bpf_get_current_pid_tgid();
	request->reserved = 0;
	request->address = address;
	request->bytes = bytes;
	request->stream = stream;
	gp_submit_memory(request);
}

#endif /* GPUPROBE_TENSORS_H */
