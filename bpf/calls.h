/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Entry of traced functions. The frame opened at entry is identified at
 * return by the stack pointer, which is unique among the open calls of a thread. Frames
 * that never return (longjmp, exceptions) are dropped when the thread is next seen with
 * its stack above them. */
#pragma once

/* Memory calls; the outermost of nested ones is recorded. */
static __always_inline bool gp_is_memory(__u32 op)
{
	return op == GP_OP_ALLOCATE || op == GP_OP_FREE ||
	       (op >= GP_OP_HANDLE_CREATE && op <= GP_OP_SHARE_CLOSE);
}

static __always_inline bool gp_is_copy(__u32 op)
{
	return op == GP_OP_COPY || op == GP_OP_COPY_BATCH;
}

/* Hooks of a framework's allocator. */
static __always_inline bool gp_is_framework(__u32 op)
{
	return op == GP_OP_TENSOR || op == GP_OP_OUT_OF_MEMORY;
}

static __always_inline bool gp_affects_launches(__u32 op)
{
	return op == GP_OP_CAPTURE_BEGIN || op == GP_OP_CAPTURE_END || op == GP_OP_KERNEL_NAME ||
	       op == GP_OP_MODULE_UNLOAD;
}

/* The compiler knows that the index is in range and would drop the mask; the verifier
 * needs it. */
static __always_inline struct gp_frame *gp_frame_at(struct gp_thread *thread, __u32 index)
{
	barrier_var(index);
	return &thread->frames[index & (GP_MAX_FRAMES - 1)];
}

/* Drops frames below the stack pointer `sp` of a new call. A tail call keeps the stack
 * pointer but has another row: it is nested. */
static __always_inline void gp_drop_stale(struct gp_thread *thread, __u64 sp, __u32 row)
{
	for (int i = 0; i < GP_MAX_FRAMES; i++) {
		__u32 depth = thread->depth;
		struct gp_frame *top;

		if (!depth)
			break;
		top = gp_frame_at(thread, depth - 1);
		if (top->sp > sp || (top->sp == sp && top->row != row))
			break;
		if (gp_is_memory(top->op))
			thread->memory_sp = 0;
		if (gp_is_single(top->op))
			gp_count(single_launches);
		thread->depth = depth - 1;
	}
}

/* True if the new memory call is nested in the open one: a driver call in a runtime
 * call. Neither library calls its own exports, so anything else means that the outer
 * call was left without returning. */
static __always_inline bool gp_is_nested(struct gp_thread *thread, __u64 sp, __u32 layer)
{
	if (!thread->memory_sp || thread->memory_sp < sp ||
	    thread->memory_sp - sp >= GP_NEST_WINDOW || layer != GP_LAYER_DRIVER ||
	    thread->memory_layer != GP_LAYER_RUNTIME)
		return false;
	if (++thread->nested <= GP_MAX_NESTED)
		return true;
	gp_count_many(nesting, GP_MAX_NESTED);
	return false;
}

/* Counts the loss of a call that could not be followed. */
static __always_inline void gp_count_lost_call(struct gp_thread *thread, __u32 op, bool no_room)
{
	if (gp_is_copy(op)) {
		gp_count(copies);
	} else if (gp_is_single(op)) {
		gp_count(single_launches);
	} else if (gp_is_framework(op)) {
		gp_count(tensors);
	} else if (gp_is_memory(op)) {
		if (no_room)
			gp_count(threads_full);
		else
			gp_count(nesting);
	} else if (thread) {
		gp_current_of(thread)->device = GP_DEVICE_UNKNOWN;
	}
}

/* Stores the extra values of a memory call until its return. A thread has at most one
 * open memory call. The arguments are in memory first: to choose among registers is a
 * branch for each, of which the verifier would follow all for each value. */
static __always_inline void gp_keep_extra(struct pt_regs *ctx,
					  const volatile struct gp_recipe *recipe,
					  struct gp_thread *thread)
{
	__u64 slots = gp_stack_pointer(ctx) + GP_RETURN_ADDRESS_BYTES;

	gp_keep_arguments(ctx, thread->arguments);
	for (int i = 0; i < GP_EXTRA; i++) {
		const volatile struct gp_value *v = &recipe->extra[i];
		__u32 index = v->index;
		__u64 value = thread->arguments[index & 7];

		if (v->place == GP_PLACE_STACK)
			value = slots + 8ULL * index;
		thread->extra[i] = gp_read_value(value, v->place, v->access, v->offset, v->bits);
	}
}

/* Fills in the new top frame; false if the call cannot be followed. */
static __always_inline bool gp_fill_frame(struct pt_regs *ctx,
					  const volatile struct gp_recipe *recipe,
					  struct gp_frame *frame, struct gp_thread *thread,
					  struct gp_counted *counted)
{
	frame->address = gp_value_of(ctx, &recipe->address);
	if (gp_is_single(frame->op)) {
		gp_enter_launch(ctx, recipe, frame, counted);
		return true;
	}
	frame->out = gp_value_of(ctx, &recipe->out);
	if (gp_is_copy(frame->op))
		return gp_enter_copy(ctx, recipe, frame);
	frame->device = (__s32)gp_value_of(ctx, &recipe->device);
	frame->stream = gp_value_of(ctx, &recipe->stream);
	frame->size = gp_value_of(ctx, &recipe->size);
	if (recipe->flags & GP_FLAG_SIZE_AT_RETURN)
		frame->factor = gp_factor(ctx, recipe);
	if (gp_is_memory(frame->op)) {
		thread->memory_sp = frame->sp;
		thread->memory_layer = recipe->layer;
		thread->nested = 0;
		if (recipe->flags & GP_FLAG_DETAILED)
			gp_keep_extra(ctx, recipe, thread);
	}
	return true;
}

/* Counts a launch, if launches are counted. False if its return is not needed. */
static __always_inline bool gp_count_launch(struct pt_regs *ctx, __u64 cookie, __u32 tgid,
					    struct gp_counted *counted)
{
	struct gp_process *process;

	if (count_launches)
		gp_on_launch(ctx, cookie, counted);
	if (stream_launches)
		return true;
	/* Without counting, only graph launches are probed, and the ledger needs those
	 * with memory nodes. */
	process = gp_find_process(tgid);
	return process && process->graph_memory;
}

/* Takes the stack of the call in `frame`, or sends it if it is the thread's last
 * tensor's. Returns whether the call has been dealt with. */
static __always_inline bool gp_take_call_stack(struct pt_regs *ctx,
					       const volatile struct gp_recipe *recipe,
					       struct gp_frame *frame, struct gp_thread *thread,
					       __u32 tid)
{
	__u32 op = frame->op;
	__u64 stack;

	if (!gp_wants_stack(recipe, op)) {
		if (recipe->flags & GP_FLAG_WITH_STACK)
			thread->stack = 0;
		return false;
	}
	stack = gp_take_stack(ctx, frame->sp, thread, tid);
	if (gp_is_framework(op)) {
		gp_send_tensor(thread, frame->row, tid, stack);
		return true;
	}
	/* A launch may be nested in a memory call, whose stack the thread has. */
	if (gp_is_single(op))
		frame->stack = stack;
	else
		thread->stack = stack;
	return false;
}

/* Function entry. Returns 1 if the return is not needed. */
static __always_inline int gp_enter(struct pt_regs *ctx, __u64 cookie)
{
	__u32 row = cookie & (GP_MAX_ROWS - 1);
	const volatile struct gp_recipe *recipe = &recipes[row];
	__u32 op = recipe->op;
	__u64 sp = PT_REGS_SP(ctx), pid_tgid;
	struct gp_counted counted = {};
	struct gp_thread *thread;
	struct gp_frame *frame;

	if (op == GP_OP_SELF_TEST) {
		selftest_seen |= 1;
		return 0;
	}
	pid_tgid = bpf_get_current_pid_tgid();
	if (gp_is_framework(op) && !gp_is_at_gpu(ctx, recipe))
		return 1;
	if ((op == GP_OP_GRAPH_LAUNCH || gp_is_single(op)) &&
	    !gp_count_launch(ctx, cookie, pid_tgid >> 32, &counted))
		return 1;
	thread = gp_thread_of(pid_tgid);
	if (!thread) {
		if (gp_is_target(pid_tgid >> 32))
			gp_count_lost_call(NULL, op, true);
		return 1;
	}
	if (gp_is_framework(op) &&
	    gp_is_done_with_tensor(ctx, recipe, thread, row, (__u32)pid_tgid))
		return 1;
	gp_drop_stale(thread, sp, row);
	if (gp_is_memory(op) && gp_is_nested(thread, sp, recipe->layer))
		return 1;
	if (thread->depth >= GP_MAX_FRAMES) {
		gp_count_lost_call(thread, op, false);
		return 1;
	}
	frame = gp_frame_at(thread, thread->depth);
	frame->sp = sp;
	frame->row = row;
	frame->op = op;
	if (!gp_fill_frame(ctx, recipe, frame, thread, &counted)) {
		gp_count_lost_call(thread, op, false);
		return 1;
	}
	/* Graphs are built of thousands of nodes that do not concern memory. */
	if (op == GP_OP_GRAPH_NODE && (__u32)frame->size != GP_NODE_ALLOCATES &&
	    (__u32)frame->size != GP_NODE_FREES)
		return 1;
	if (gp_take_call_stack(ctx, recipe, frame, thread, pid_tgid))
		return 1;
	/* Last: what is above is not the call's. */
	if (call_durations || op != GP_OP_ALLOCATE)
		frame->start_ns = bpf_ktime_get_ns();
	thread->depth++;
	return 0;
}
