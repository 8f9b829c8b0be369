/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Entry and return of a traced function. A frame opened at entry is found
 * again at return by the stack pointer, which no two open calls of a thread
 * share. Frames whose return never came (longjmp, an exception) are dropped as
 * soon as the thread is seen with its stack above them.
 */
#ifndef GPUPROBE_CALLS_H
#define GPUPROBE_CALLS_H

static __always_inline bool gp_is_memory(__u32 op)
{
	return op == GP_OP_ALLOCATE || op == GP_OP_FREE;
}

static __always_inline bool gp_is_copy(__u32 op)
{
	return op == GP_OP_COPY || op == GP_OP_COPY_BATCH;
}

static __always_inline bool gp_is_about_kernels(__u32 op)
{
	return op == GP_OP_CAPTURE_BEGIN || op == GP_OP_CAPTURE_END || op == GP_OP_KERNEL_NAME ||
	       op == GP_OP_MODULE_UNLOAD;
}

/* The compiler knows that the index is in range and would drop the mask; the
 * verifier does not know and needs it. */
static __always_inline struct gp_frame *gp_frame_at(struct gp_thread *thread, __u32 index)
{
	barrier_var(index);
	return &thread->frames[index & (GP_MAX_FRAMES - 1)];
}

/* Drops the frames that the stack pointer `sp` of a new call has left behind.
 * A tail call keeps the stack pointer but not the row: it is inside. */
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
		thread->depth = depth - 1;
	}
}

/* True when the new memory call is part of the one around it: the driver's
 * inside the runtime's. Neither library calls its own exports, so anything else
 * means that the outer call was left without returning. */
static __always_inline bool gp_is_nested(struct gp_thread *thread, __u64 sp, __u32 layer)
{
	if (!thread->memory_sp || thread->memory_sp < sp ||
	    thread->memory_sp - sp >= GP_NEST_WINDOW || layer != GP_LAYER_DRIVER ||
	    thread->memory_layer != GP_LAYER_RUNTIME)
		return false;
	if (++thread->nested <= GP_MAX_NESTED)
		return true;
	__sync_fetch_and_add(&losses.nesting, GP_MAX_NESTED);
	return false;
}

/* The call could not be followed: what is lost by that. */
static __always_inline void gp_lose(struct gp_thread *thread, __u32 op, bool no_room)
{
	if (gp_is_copy(op)) {
		gp_count(copies);
	} else if (gp_is_memory(op)) {
		if (no_room)
			gp_count(threads_full);
		else
			gp_count(nesting);
	} else if (thread) {
		gp_current_of(thread)->device = GP_DEVICE_UNKNOWN;
	}
}

/* Fills in the new frame on top; false if the call cannot be followed. */
static __always_inline bool gp_fill_frame(struct pt_regs *ctx,
					  const volatile struct gp_recipe *recipe,
					  struct gp_frame *frame, struct gp_thread *thread)
{
	frame->address = gp_value_of(ctx, &recipe->address);
	frame->out = gp_value_of(ctx, &recipe->out);
	if (gp_is_memory(frame->op)) {
		thread->memory_sp = frame->sp;
		thread->memory_layer = recipe->layer;
		thread->nested = 0;
		frame->size = gp_value_of(ctx, &recipe->size);
		frame->start_ns = bpf_ktime_get_ns();
		return true;
	}
	if (gp_is_copy(frame->op))
		return gp_enter_copy(ctx, recipe, frame);
	frame->device = (__s32)gp_value_of(ctx, &recipe->device);
	frame->stream = gp_value_of(ctx, &recipe->stream);
	return true;
}

/* Function entry. Returns 1 when its return need not be seen. */
static __always_inline int gp_enter(struct pt_regs *ctx, __u64 cookie)
{
	__u32 row = cookie & (GP_MAX_ROWS - 1);
	const volatile struct gp_recipe *recipe = &recipes[row];
	__u32 op = recipe->op;
	__u64 sp = PT_REGS_SP(ctx), pid_tgid;
	struct gp_thread *thread;
	struct gp_frame *frame;

	if (op == GP_OP_SELFTEST) {
		selftest_seen |= 1;
		return 0;
	}
	pid_tgid = bpf_get_current_pid_tgid();
	thread = gp_thread_of(pid_tgid);
	if (!thread) {
		if (gp_is_target(pid_tgid >> 32))
			gp_lose(NULL, op, true);
		return 1;
	}
	gp_drop_stale(thread, sp, row);
	if (gp_is_memory(op) && gp_is_nested(thread, sp, recipe->layer))
		return 1;
	if (thread->depth >= GP_MAX_FRAMES) {
		gp_lose(thread, op, false);
		return 1;
	}
	frame = gp_frame_at(thread, thread->depth);
	frame->sp = sp;
	frame->row = row;
	frame->op = op;
	if (!gp_fill_frame(ctx, recipe, frame, thread)) {
		gp_lose(thread, op, false);
		return 1;
	}
	thread->depth++;
	return 0;
}

/* Sends the finished memory call in `frame`. */
static __always_inline void gp_send_call(struct gp_thread *thread, struct gp_frame *frame, __u32 op,
					 __s32 result, __u32 tid)
{
	struct gp_call *call;
	__u64 address = frame->address;

	gp_announce(thread);
	if (op == GP_OP_ALLOCATE && !result &&
	    bpf_probe_read_user(&address, sizeof(address), (void *)frame->out)) {
		gp_count(unreadable);
		return;
	}
	call = bpf_ringbuf_reserve(&memory_ring, sizeof(*call), 0);
	if (!call) {
		gp_count(ring_full);
		return;
	}
	call->type = GP_RECORD_CALL;
	call->row = frame->row;
	call->result = result;
	call->tgid = thread->tgid;
	call->tid = tid;
	call->start_ns = frame->start_ns;
	call->end_ns = bpf_ktime_get_ns();
	call->address = address;
	call->size = frame->size;
	call->device = gp_current_device(thread);
	call->reserved = 0;
	gp_submit_memory(call);
}

/* A call that matters for the counting of launches has returned. */
static __always_inline void gp_apply_kernels(struct gp_thread *thread, struct gp_frame *frame,
					     __u32 op, __s32 result, __u32 tid)
{
	struct gp_process *process = gp_known_process(thread->tgid);

	if (!process)
		return;
	if (op == GP_OP_CAPTURE_END)
		gp_end_capture(process, frame->stream);
	else if (result)
		return;
	else if (op == GP_OP_CAPTURE_BEGIN)
		gp_begin_capture(process, frame->stream, tid);
	else if (op == GP_OP_MODULE_UNLOAD)
		process->epoch++;
	else
		gp_learn_name(process, frame);
}

/* Function return, for whichever open call it belongs to. */
static __always_inline void gp_return(struct pt_regs *ctx, __u64 cookie)
{
	__u32 row = cookie & (GP_MAX_ROWS - 1);
	__u32 op = recipes[row].op, tid = (__u32)bpf_get_current_pid_tgid();
	__s32 result = (__s32)PT_REGS_RC(ctx);
	__u64 sp = gp_entry_sp(ctx);
	struct gp_thread *thread;
	struct gp_frame *frame;
	__u32 depth;

	if (op == GP_OP_SELFTEST) {
		selftest_seen |= 2;
		return;
	}
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread)
		return;
	depth = thread->depth;
	for (int i = 0; i < GP_MAX_FRAMES && depth; i++) {
		depth--;
		frame = gp_frame_at(thread, depth);
		if (frame->sp > sp)
			return; /* a nested memory call, for which no frame was opened */
		if (frame->sp == sp && frame->row == row)
			goto found;
	}
	return;
found:
	thread->depth = depth;
	if (gp_is_memory(op)) {
		thread->memory_sp = 0;
		gp_send_call(thread, frame, op, result, tid);
	} else if (gp_is_copy(op)) {
		gp_send_copy(thread, gp_known_process(thread->tgid), frame, result, tid);
	} else if (gp_is_about_kernels(op)) {
		gp_apply_kernels(thread, frame, op, result, tid);
	} else if (!result) {
		gp_apply_context(thread, frame, op);
	}
}

#endif /* GPUPROBE_CALLS_H */
