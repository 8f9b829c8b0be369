/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Allocations by frameworks' allocators. PyTorch calls an otherwise empty profiler hook
 * for each block, with its totals; where its USDT probes are compiled in, these report
 * the requested size right after that. There are hundreds of thousands per second, so
 * unneeded work is avoided. */
#pragma once

/* c10::DeviceType::CUDA */
#define GP_TORCH_CUDA 1

/* Reserves a record while there is room for tensors: memory calls have priority, and
 * tensors never fill the ring. */
#define gp_reserve_tensor(type, unread)                                                            \
	((unread) < GP_TENSOR_BYTES                                                                \
		 ? gp_reserve_as(memory_ring, GP_RING_MEMORY, GP_RING_TENSORS, type, unread)       \
		 : NULL)

/* Whether it may concern GPU memory. */
static __always_inline bool gp_is_at_gpu(struct pt_regs *ctx,
					 const volatile struct gp_recipe *recipe)
{
	__u64 fourth = PT_REGS_PARM4(ctx), fifth = PT_REGS_PARM5(ctx);

	/* The verifier does not accept a pointer to either of two context members. */
	barrier_var(fourth);
	barrier_var(fifth);
	if (recipe->op == GP_OP_OUT_OF_MEMORY)
		return (fourth & 0xff) == GP_TORCH_CUDA;
	return recipe->device.place == GP_PLACE_NONE || (fifth & 0xff) == GP_TORCH_CUDA;
}

/* Reads the arguments; false if they are no allocation, free or out-of-memory error. */
static __always_inline bool
gp_read_block(struct pt_regs *ctx, const volatile struct gp_recipe *recipe, struct gp_block *block)
{
	const __u64 allocation = sizeof("MemoryAllocation") - 1;
	const __u64 deallocation = sizeof("MemoryDeallocation") - 1;
	__u64 first = PT_REGS_PARM1(ctx), second = PT_REGS_PARM2(ctx);
	__u64 third = PT_REGS_PARM3(ctx), fourth = PT_REGS_PARM4(ctx);
	__u64 fifth = PT_REGS_PARM5(ctx), length;

	/* As above. */
	barrier_var(first);
	barrier_var(second);
	barrier_var(third);
	barrier_var(fourth);
	barrier_var(fifth);
	if (recipe->device.place != GP_PLACE_NONE) {
		block->address = first;
		block->bytes = second;
		block->allocated = third;
		block->held = fourth;
		block->device = fifth >> 8 & 0xff;
		if (recipe->op != GP_OP_OUT_OF_MEMORY)
			return true;
		block->address = 0;
		block->bytes = first;
		block->allocated = second;
		block->held = third;
		block->device = fourth >> 8 & 0xff;
		return true;
	}
	length = second;
	barrier_var(length);
	block->address = fourth;
	block->bytes = GP_SIXTH_ARGUMENT(ctx);
	block->allocated = block->held = 0;
	block->device = GP_ANY_DEVICE;
	if (length == deallocation)
		block->bytes = -block->bytes;
	return length == allocation || length == deallocation;
}

/* Sends an allocation, free or out-of-memory error, the last with a wake-up. */
static __always_inline void gp_send_tensor(struct gp_thread *thread, __u32 row, __u32 tid,
					   __u64 stack)
{
	struct gp_block *block = &thread->block;
	bool is_at_end = recipes[row & (GP_MAX_ROWS - 1)].op == GP_OP_OUT_OF_MEMORY;
	struct gp_tensor *tensor;
	__u64 unread;

	gp_announce(thread);
	unread = gp_unread(memory_ring);
	tensor = gp_reserve_tensor(struct gp_tensor, unread);
	if (!tensor) {
		gp_count(tensors);
		return;
	}
	tensor->type = GP_RECORD_TENSOR;
	tensor->row = row;
	tensor->device = block->device;
	tensor->reserved = 0;
	tensor->tgid = thread->tgid;
	tensor->tid = tid;
	tensor->time_ns = bpf_ktime_get_ns();
	tensor->address = block->address;
	tensor->bytes = block->bytes;
	tensor->allocated = block->allocated;
	tensor->held = block->held;
	tensor->stack = stack;
	bpf_ringbuf_submit(tensor, is_at_end ? gp_wake_now(GP_RING_MEMORY)
					     : gp_wake_flags(GP_RING_MEMORY, unread));
}

/* Stores the event until it is sent, or sends it at once if no call stack is needed.
 * True if it was sent. */
static __always_inline bool gp_is_done_with_tensor(struct pt_regs *ctx,
						   const volatile struct gp_recipe *recipe,
						   struct gp_thread *thread, __u32 row, __u32 tid)
{
	if (!gp_read_block(ctx, recipe, &thread->block))
		return true;
	if (stack_mode != GP_STACKS_OFF && thread->block.bytes >= 0)
		return false;
	gp_send_tensor(thread, row, tid, 0);
	return true;
}

/* `pytorch:malloc`: address, device, requested bytes, stream. It follows the tensor on
 * the same thread. */
static __always_inline void gp_on_request(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid;
	struct gp_thread *thread = bpf_map_lookup_elem(&threads, &tid);
	struct gp_request *request;
	long bytes = 0, stream = 0;
	__u64 unread;

	if (!thread || !thread->block.address)
		return;
	if (bpf_usdt_arg(ctx, 2, &bytes) || bpf_usdt_arg(ctx, 3, &stream)) {
		gp_count(tensors);
		return;
	}
	unread = gp_unread(memory_ring);
	request = gp_reserve_tensor(struct gp_request, unread);
	if (!request) {
		gp_count(tensors);
		return;
	}
	request->type = GP_RECORD_REQUEST;
	request->reserved = 0;
	request->tgid = thread->tgid;
	request->address = thread->block.address;
	request->bytes = bytes;
	request->stream = stream;
	bpf_ringbuf_submit(request, gp_wake_flags(GP_RING_MEMORY, unread));
}
