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
static __always_inline bool gp_is_at_gpu(struct gp_arguments *arguments,
					 const volatile struct gp_recipe *recipe)
{
	if (recipe->op == GP_OP_OUT_OF_MEMORY)
		return (arguments->registers[3] & 0xff) == GP_TORCH_CUDA;
	return recipe->device.place == GP_PLACE_NONE ||
	       (arguments->registers[4] & 0xff) == GP_TORCH_CUDA;
}

/* Reads the arguments; false if they are no allocation, free or out-of-memory error. */
static __always_inline bool gp_read_block(struct gp_arguments *arguments,
					  const volatile struct gp_recipe *recipe,
					  struct gp_block *block)
{
	const __u64 allocation = sizeof("MemoryAllocation") - 1;
	const __u64 deallocation = sizeof("MemoryDeallocation") - 1;
	__u64 *registers = arguments->registers, length = registers[1];
	/* The out-of-memory error has no address. */
	__u32 first = recipe->op == GP_OP_OUT_OF_MEMORY ? 0 : 1;

	if (recipe->device.place != GP_PLACE_NONE) {
		block->address = first ? registers[0] : 0;
		block->bytes = registers[first];
		block->allocated = registers[first + 1];
		block->held = registers[first + 2];
		block->device = registers[first + 3] >> 8 & 0xff;
		return true;
	}
	block->address = registers[3];
	block->bytes = registers[5];
	block->allocated = block->held = 0;
	block->device = GP_ANY_DEVICE;
	if (length == deallocation)
		block->bytes = -block->bytes;
	return length == allocation || length == deallocation;
}

/* Sends an allocation, free or out-of-memory error, the last with a wake-up. */
__noinline int gp_send_tensor(struct gp_thread *thread, __u32 row, __u32 tid, __u64 stack)
{
	bool is_at_end = recipes[row & (GP_MAX_ROWS - 1)].op == GP_OP_OUT_OF_MEMORY;
	struct gp_tensor *tensor;
	struct gp_block *block;
	__u64 unread;

	if (!thread)
		return 0;
	block = &thread->block;
	if (!thread->announced)
		gp_announce(thread);
	unread = gp_unread(memory_ring);
	tensor = gp_reserve_tensor(struct gp_tensor, unread);
	if (!tensor) {
		gp_count(tensors);
		return 0;
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
	return 0;
}

/* Stores the event until it is sent, or sends it at once if no call stack is needed.
 * True if it was sent. */
static __always_inline bool gp_is_done_with_tensor(struct gp_arguments *arguments,
						   const volatile struct gp_recipe *recipe,
						   struct gp_thread *thread, __u32 row, __u32 tid)
{
	if (!gp_read_block(arguments, recipe, &thread->block))
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
