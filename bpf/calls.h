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
__noinline int gp_drop_stale(struct gp_thread *thread, __u64 sp, __u32 row)
{
	if (!thread)
		return 0;
	for (int i = 0; i < GP_MAX_FRAMES && thread->depth; i++) {
		__u32 depth = thread->depth;
		struct gp_frame *top;

		top = gp_frame_at(thread, depth - 1);
		if (top->sp > sp || (top->sp == sp && top->row != row))
			break;
		if (gp_is_memory(top->op))
			thread->memory_sp = 0;
		if (gp_is_single(top->op))
			gp_count(single_launches);
		thread->depth = depth - 1;
	}
	return 0;
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

/* Counts a call that could not be followed, of memory as `loss`; false if it was another. */
static __always_inline bool gp_count_lost_call(__u32 op, __u32 loss)
{
	if (gp_is_copy(op))
		loss = GP_LOSS(copies);
	else if (gp_is_single(op))
		loss = GP_LOSS(single_launches);
	else if (!gp_is_memory(op))
		return false;
	gp_count_loss(loss, 1);
	return true;
}

/* Stores the extra values of a memory call until its return. A thread has at most one
 * open memory call. */
static __always_inline void gp_keep_extra(struct gp_arguments *arguments,
					  const volatile struct gp_recipe *recipe,
					  struct gp_thread *thread)
{
	for (int i = 0; i < GP_EXTRA; i++)
		thread->extra[i] = gp_value_of(arguments, &recipe->extra[i]);
}

/* Fills in the new top frame; false if the call cannot be followed. */
static __always_inline bool gp_fill_frame(struct gp_arguments *arguments,
					  const volatile struct gp_recipe *recipe,
					  struct gp_frame *frame, struct gp_thread *thread)
{
	frame->address = gp_value_of(arguments, &recipe->address);
	frame->stream = gp_value_of(arguments, &recipe->stream);
	if (gp_is_single(frame->op)) {
		__builtin_memset(frame->shape, 0, sizeof(frame->shape));
		gp_read_shape(arguments, recipe->shape, frame->shape);
		frame->stack = 0;
		return true;
	}
	frame->out = gp_value_of(arguments, &recipe->out);
	if (gp_is_copy(frame->op))
		return gp_enter_copy(arguments, recipe, frame);
	frame->device = (__s32)gp_value_of(arguments, &recipe->device);
	frame->size = gp_value_of(arguments, &recipe->size);
	if (recipe->flags & GP_FLAG_SIZE_AT_RETURN)
		frame->factor = gp_factor(arguments, recipe);
	if (gp_is_memory(frame->op)) {
		thread->memory_sp = frame->sp;
		thread->memory_layer = recipe->layer;
		thread->nested = 0;
		if (recipe->flags & GP_FLAG_DETAILED)
			gp_keep_extra(arguments, recipe, thread);
	}
	return true;
}

/* Whether the return of a launch is needed: it is sent, or the ledger needs it, as its graph may
 * have memory nodes. */
static __always_inline bool gp_needs_return(__u32 tgid)
{
	struct gp_process *process;

	if (stream_launches)
		return true;
	process = gp_find_process(tgid);
	return process && process->graph_memory;
}

/* Takes the stack of the call in `frame`. */
static __always_inline void gp_take_call_stack(struct pt_regs *ctx,
					       const volatile struct gp_recipe *recipe,
					       struct gp_frame *frame, struct gp_thread *thread,
					       __u32 tid)
{
	__u32 op = frame->op;
	__u64 stack = 0;

	if (gp_wants_stack(recipe, op))
		stack = gp_take_stack(ctx, frame->sp, thread, tid);
	else if (!(recipe->flags & GP_FLAG_WITH_STACK))
		return;
	/* Others may be nested in a memory call, whose stack the thread has. */
	if (gp_is_memory(op))
		thread->stack = stack;
	else
		frame->stack = stack;
}

/* Opens a call of a thread. Returns 1 if the return is not needed. */
static __always_inline int gp_open_call(struct pt_regs *ctx, struct gp_arguments *arguments,
					struct gp_thread *thread, __u32 row, __u32 counted,
					__u32 tid)
{
	const volatile struct gp_recipe *recipe = &recipes[row];
	__u64 sp = PT_REGS_SP(ctx);
	__u32 op = recipe->op;
	struct gp_frame *frame;

	if (thread->depth)
		gp_drop_stale(thread, sp, row);
	if (gp_is_memory(op) && gp_is_nested(thread, sp, recipe->layer))
		return 1;
	if (thread->depth >= GP_MAX_FRAMES)
		goto lost;
	frame = gp_frame_at(thread, thread->depth);
	frame->sp = sp;
	frame->row = row;
	frame->op = op;
	frame->captured = counted & 1;
	frame->epoch = counted >> 16;
	if (!gp_fill_frame(arguments, recipe, frame, thread))
		goto lost;
	/* Graphs are built of thousands of nodes that do not concern memory. */
	if (op == GP_OP_GRAPH_NODE && (__u32)frame->size != GP_NODE_ALLOCATES &&
	    (__u32)frame->size != GP_NODE_FREES && (__u32)frame->size <= GP_NODE_LAST)
		return 1;
	gp_take_call_stack(ctx, recipe, frame, thread, tid);
	/* Last: what is above is not the call's. */
	if (call_durations || op != GP_OP_ALLOCATE)
		frame->start_ns = bpf_ktime_get_ns();
	thread->depth++;
	return 0;
lost:
	if (!gp_count_lost_call(op, GP_LOSS(nesting)))
		gp_current_of(thread)->device = GP_DEVICE_UNKNOWN;
	return 1;
}

/* Function entry. Returns 1 if the return is not needed. */
static __always_inline int gp_enter(struct pt_regs *ctx, __u64 cookie)
{
	__u32 row = cookie & (GP_MAX_ROWS - 1);
	const volatile struct gp_recipe *recipe = &recipes[row];
	__u32 op = recipe->op, counted = 0;
	struct gp_arguments arguments;
	__u64 pid_tgid, start_ns;
	struct gp_thread *thread;
	int is_done;

	if (op == GP_OP_SELF_TEST) {
		selftest_seen |= 1;
		return 0;
	}
	pid_tgid = bpf_get_current_pid_tgid();
	gp_read_arguments(ctx, &arguments);
	if (gp_is_checkpoint(op)) {
		arguments.registers[7] = pid_tgid; /* no more of the stack is needed */
		bpf_map_update_elem(&checkpoints, &arguments.registers[7], arguments.registers,
				    BPF_ANY);
		return 0;
	}
	/* Its handle may be reused before the call returns. */
	if (op == GP_OP_STREAM_DESTROY)
		gp_forget_stream(gp_value_of(&arguments, &recipe->stream));
	if (op == GP_OP_GRAPH_LAUNCH || gp_is_single(op)) {
		counted = gp_count_launch(&arguments, row);
		if (!gp_needs_return(pid_tgid >> 32))
			return 1;
	}
	thread = gp_thread_of(pid_tgid);
	if (!thread) {
		if (gp_is_target(pid_tgid >> 32))
			gp_count_lost_call(op, GP_LOSS(threads_full));
		return 1;
	}
	start_ns = gp_begin_hit(thread);
	is_done = gp_open_call(ctx, &arguments, thread, row, counted, pid_tgid);
	gp_end_hit(thread, start_ns);
	return is_done;
}
