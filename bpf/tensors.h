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

/* Reads the block that the row describes; false if there is none. */
static __always_inline bool gp_read_described(struct pt_regs *ctx, __u64 cookie,
					      struct gp_tensor *tensor)
{
	const volatile struct gp_recipe *recipe = &recipes[cookie & (GP_MAX_ROWS - 1)];
	struct gp_arguments arguments;

	gp_read_arguments(ctx, &arguments);
	tensor->address = gp_value_of(&arguments, &recipe->address) +
			  gp_value_of(&arguments, &recipe->second);
	if (cookie & GP_COOKIE_RESULT)
		tensor->address = PT_REGS_RC(ctx);
	tensor->bytes = -1;
	if (recipe->size.place != GP_PLACE_NONE)
		tensor->bytes = gp_value_of(&arguments, &recipe->size);
	return tensor->address || cookie & GP_COOKIE_REQUEST;
}

/* Keeps the size of a request until its function returns; false if there is no block yet. */
static __always_inline bool gp_pair_request(struct pt_regs *ctx, struct gp_thread *thread,
					    __u64 cookie, struct gp_tensor *tensor)
{
	__u64 sp = PT_REGS_SP(ctx), asked_sp = thread->asked_sp;

	if (cookie & GP_COOKIE_REQUEST) {
		thread->asked = tensor->bytes;
		thread->asked_sp = sp;
		return false;
	}
	if (cookie & GP_COOKIE_RESULT) {
		thread->asked_sp = 0;
		tensor->bytes = thread->asked;
		return sp == asked_sp;
	}
	return true;
}

/* Reads the arguments; false if they are no allocation, free or out-of-memory error of GPU memory.
 */
static __always_inline bool gp_read_block(struct pt_regs *ctx, __u64 cookie,
					  struct gp_tensor *tensor)
{
	bool has_device = cookie & GP_COOKIE_WITH_DEVICE;
	bool is_at_end = cookie & GP_COOKIE_OUT_OF_MEMORY;
	const __u64 allocation = sizeof("MemoryAllocation") - 1;
	const __u64 deallocation = sizeof("MemoryDeallocation") - 1;
	__u64 first = PT_REGS_PARM1(ctx), second = PT_REGS_PARM2(ctx), third = PT_REGS_PARM3(ctx);
	__u64 fourth = PT_REGS_PARM4(ctx), device = PT_REGS_PARM5(ctx);

	/* The out-of-memory error has no address. */
	if (is_at_end) {
		device = fourth;
		fourth = third;
		third = second;
		second = first;
		first = 0;
	}
	if (has_device) {
		tensor->address = first;
		tensor->bytes = second;
		tensor->allocated = third;
		tensor->held = fourth;
		tensor->device = device >> 8 & 0xff;
		return (device & 0xff) == GP_TORCH_CUDA;
	}
	tensor->allocated = tensor->held = 0;
	tensor->device = GP_ANY_DEVICE;
	/* XLA's has the allocator before the bytes: the arguments were moved by one. */
	if (is_at_end) {
		tensor->address = 0;
		tensor->bytes = third;
		return true;
	}
	if (cookie & GP_COOKIE_BLOCK)
		return gp_read_described(ctx, cookie, tensor);
	tensor->address = fourth;
	tensor->allocated = first;
	tensor->held = device;
	tensor->bytes = GP_SIXTH_ARGUMENT(ctx);
	if (second == deallocation)
		tensor->bytes = -tensor->bytes;
	return second == allocation || second == deallocation;
}

/* Sends an allocation, free or out-of-memory error, the last with a wake-up. */
static __always_inline void gp_send_tensor(struct pt_regs *ctx, struct gp_thread *thread,
					   bool is_at_end, struct gp_tensor *tensor)
{
	struct gp_tensor *record;
	__u64 unread;

	if (stack_mode != GP_STACKS_OFF && tensor->bytes >= 0)
		tensor->stack = gp_take_stack(ctx, PT_REGS_SP(ctx), thread, tensor->tid);
	if (!thread->announced)
		gp_announce(thread);
	unread = gp_unread_by(thread, sizeof(*tensor));
	record = gp_reserve_tensor(struct gp_tensor, unread);
	if (!record) {
		gp_count(tensors);
		return;
	}
	tensor->time_ns = bpf_ktime_get_ns();
	*record = *tensor;
	bpf_ringbuf_submit(record, is_at_end ? gp_wake_now(GP_RING_MEMORY)
					     : gp_wake_flags(GP_RING_MEMORY, unread));
}

/* Entry of a hook of a framework's allocator. */
static __always_inline void gp_on_tensor(struct pt_regs *ctx, __u64 cookie)
{
	bool is_at_end = cookie & GP_COOKIE_OUT_OF_MEMORY;
	struct gp_tensor tensor = {.type = GP_RECORD_TENSOR, .row = cookie & (GP_MAX_ROWS - 1)};
	__u64 pid_tgid = bpf_get_current_pid_tgid(), start_ns;
	struct gp_thread *thread;

	if (!take_tensors || !gp_read_block(ctx, cookie, &tensor))
		return;
	tensor.tgid = pid_tgid >> 32;
	tensor.tid = (__u32)pid_tgid;
	thread = gp_thread_of(pid_tgid);
	if (!thread) {
		if (gp_is_target(tensor.tgid))
			gp_count(tensors);
		return;
	}
	if (!gp_pair_request(ctx, thread, cookie, &tensor))
		return;
	thread->cost.tensors += !is_at_end;
	start_ns = gp_begin_hit(thread);
	thread->block = tensor.address;
	gp_send_tensor(ctx, thread, is_at_end, &tensor);
	gp_end_hit(thread, start_ns);
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

	if (!thread || !thread->block)
		return;
	if (bpf_usdt_arg(ctx, 2, &bytes) || bpf_usdt_arg(ctx, 3, &stream)) {
		gp_count(tensors);
		return;
	}
	unread = gp_unread_by(thread, sizeof(*request));
	request = gp_reserve_tensor(struct gp_request, unread);
	if (!request) {
		gp_count(tensors);
		return;
	}
	request->type = GP_RECORD_REQUEST;
	request->reserved = 0;
	request->tgid = thread->tgid;
	request->address = thread->block;
	request->bytes = bytes;
	request->stream = stream;
	bpf_ringbuf_submit(request, gp_wake_flags(GP_RING_MEMORY, unread));
}
