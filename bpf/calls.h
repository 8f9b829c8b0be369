/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Entry and return of traced functions. The frame opened at entry is identified at
 * return by the stack pointer, which is unique among the open calls of a thread. Frames
 * that never return (longjmp, exceptions) are dropped when the thread is next seen with
 * its stack above them. */
#ifndef GPUPROBE_CALLS_H
#define GPUPROBE_CALLS_H

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
	for (int i = 0; i < GP_MAX_EXTRA; i++) {
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
	if (recipe->flags & GP_SIZE_AT_RETURN)
		frame->factor = gp_factor(ctx, recipe);
	if (gp_is_memory(frame->op)) {
		thread->memory_sp = frame->sp;
		thread->memory_layer = recipe->layer;
		thread->nested = 0;
		if (recipe->flags & GP_DETAILED)
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

/* Function entry. Returns 1 if the return is not needed. */
static __always_inline int gp_enter(struct pt_regs *ctx, __u64 cookie)
{
	__u32 row = cookie & (GP_MAX_ROWS - 1);
	const volatile struct gp_recipe *recipe = &recipes[row];
	__u32 op = recipe->op;
	__u64 sp = PT_REGS_SP(ctx), pid_tgid, stack;
	struct gp_counted counted = {};
	struct gp_thread *thread;
	struct gp_frame *frame;

	if (op == GP_OP_SELFTEST) {
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
	if (op == GP_OP_GRAPH_NODE && (__u32)frame->size != GP_NODE_MEMORY_ALLOCATE &&
	    (__u32)frame->size != GP_NODE_MEMORY_FREE)
		return 1;
	if (gp_wants_stack(recipe, op)) {
		stack = gp_take_stack(ctx, sp, thread, (__u32)pid_tgid);
		if (gp_is_framework(op)) {
			gp_send_tensor(thread, row, (__u32)pid_tgid, stack);
			return 1;
		}
		/* A launch may be nested in a memory call, whose stack the thread has. */
		if (gp_is_single(op))
			frame->stack = stack;
		else
			thread->stack = stack;
	} else if (recipe->flags & GP_WITH_STACK) {
		thread->stack = 0;
	}
	/* Last: what is above is not the call's. */
	if (call_durations || op != GP_OP_ALLOCATE)
		frame->start_ns = bpf_ktime_get_ns();
	thread->depth++;
	return 0;
}

/* Values written by the memory call in `frame`, read at its return. */
struct gp_written {
	__u64 out;
	__u64 address;
	__u64 size;
};

/* Reads the values written by the call; false if a returned address is unreadable.
 * Callers may pass NULL for optional results. */
static __always_inline bool gp_read_written(const volatile struct gp_recipe *recipe,
					    struct gp_frame *frame, struct gp_written *written)
{
	bool has_out = recipe->out.place != GP_PLACE_NONE;

	written->out = 0;
	written->address = frame->address;
	written->size = frame->size;
	if (has_out &&
	    bpf_probe_read_user(&written->out, sizeof(written->out), (void *)frame->out) &&
	    gp_is_memory(frame->op))
		return false;
	if (recipe->address.place == GP_PLACE_NONE)
		written->address = written->out;
	if (recipe->flags & GP_SIZE_AT_RETURN) {
		written->size = 0;
		if (bpf_probe_read_user(&written->size, sizeof(written->size),
					(void *)frame->size) &&
		    gp_is_memory(frame->op))
			return false;
		written->size *= frame->factor;
	}
	return true;
}

/* What is computed of a returned call before its record is reserved: with branches there,
 * it would be verified once for each size of the record. */
struct gp_computed {
	__u64 start_ns;
	__u64 end_ns;
	__u64 stack;
	__s32 device;
	__u32 context;
	__u32 flags;
};

/* The times of a returned call. A block exists from the return of its allocation to the
 * entry of its free: if no duration is needed, the other times are not read. */
static __always_inline void gp_compute_times(struct gp_computed *call, struct gp_frame *frame)
{
	call->start_ns = frame->start_ns;
	if (!call_durations && frame->op == GP_OP_FREE)
		call->end_ns = call->start_ns;
	else
		call->end_ns = bpf_ktime_get_ns();
	if (!call_durations && frame->op == GP_OP_ALLOCATE)
		call->start_ns = call->end_ns;
}

static __always_inline void gp_compute(struct gp_computed *call, struct gp_thread *thread,
				       const volatile struct gp_recipe *recipe,
				       struct gp_frame *frame, __s32 result)
{
	bool on_stream = gp_is_memory(frame->op) && recipe->stream.place != GP_PLACE_NONE;
	struct gp_process *process = NULL;
	struct gp_capture *capture;
	struct gp_context *about;

	if (on_stream || frame->op == GP_OP_CAPTURE_END)
		process = gp_find_capturing(thread->tgid);
	gp_compute_times(call, frame);
	if (recipe->device.place != GP_PLACE_NONE)
		call->device = frame->device;
	else
		call->device = gp_current_device(thread);
	call->context = gp_current_of(thread)->number;
	call->flags = 0;
	call->stack = recipe->flags & GP_WITH_STACK ? thread->stack : 0;
	if (frame->op == GP_OP_CONTEXT_DESTROY) {
		about = gp_context_of(thread, frame->address);
		call->context = about ? about->number : GP_CONTEXT_UNKNOWN;
	} else if (frame->op == GP_OP_CAPTURE_END) {
		capture = process && result != GP_WRONG_THREAD
				  ? gp_capture_of(process, frame->stream)
				  : NULL;
		call->context = capture && capture->began ? capture->number : GP_CONTEXT_UNKNOWN;
	} else if (on_stream && process) {
		capture = gp_capture_of(process, frame->stream);
		if (!capture)
			return;
		call->flags = GP_CALL_CAPTURED;
		call->context = capture->number;
		process->graph_memory = 1;
	}
}

static __always_inline void gp_fill_call(struct gp_call *call, struct gp_thread *thread,
					 struct gp_frame *frame, struct gp_written *written,
					 struct gp_computed *computed, __s32 result, __u32 tid)
{
	call->row = frame->row;
	call->result = result;
	call->tgid = thread->tgid;
	call->tid = tid;
	call->start_ns = computed->start_ns;
	call->end_ns = computed->end_ns;
	call->address = written->address;
	call->size = written->size;
	call->device = computed->device;
	call->context = computed->context;
	call->flags = computed->flags;
	call->stack = computed->stack;
}

static __always_inline void gp_fill_detail(struct gp_detail *detail, struct gp_thread *thread,
					   const volatile struct gp_recipe *recipe,
					   struct gp_frame *frame, struct gp_written *written)
{
	detail->out = written->out;
	detail->stream = frame->stream;
	if (recipe->flags & GP_OUT_BYTES) {
		if (bpf_probe_read_user(detail->values, sizeof(detail->values), (void *)frame->out))
			__builtin_memset(detail->values, 0, sizeof(detail->values));
	} else if (gp_is_memory(frame->op)) {
		__builtin_memcpy(detail->values, thread->extra, sizeof(detail->values));
	} else {
		__builtin_memset(detail->values, 0, sizeof(detail->values));
	}
}

/* Reserves a record of the memory ring, or counts the loss. */
#define gp_reserve_call(record, slot, unread)                                                      \
	({                                                                                         \
		(record) =                                                                         \
			gp_reserve(memory_ring, GP_RING_MEMORY, slot, typeof(*(record)), unread);  \
		if (!(record))                                                                     \
			gp_count(ring_full);                                                       \
		(record);                                                                          \
	})

/* After an out-of-memory error the reader is woken at once, because the GPU's free
 * memory soon changes. */
static __always_inline __u64 gp_call_flags(__s32 result, __u64 unread)
{
	if (result == GP_OUT_OF_MEMORY)
		return gp_wake_now(GP_RING_MEMORY);
	return gp_wake_flags(GP_RING_MEMORY, unread);
}

/* Sends the returned call in `frame` to the ledger. */
static __always_inline void gp_send_call(struct gp_thread *thread, struct gp_frame *frame,
					 __s32 result, __u32 tid)
{
	const volatile struct gp_recipe *recipe = &recipes[frame->row & (GP_MAX_ROWS - 1)];
	struct gp_written written = {.address = frame->address, .size = frame->size};
	struct gp_computed computed;
	struct gp_call *call;
	struct gp_detail *detail;
	struct gp_named *named;
	long length = 0;
	__u64 unread;

	gp_announce(thread);
	if (!result && !gp_read_written(recipe, frame, &written)) {
		gp_count(unreadable);
		return;
	}
	gp_compute(&computed, thread, recipe, frame, result);
	unread = gp_unread(memory_ring);
	if (recipe->flags & GP_NAMED) {
		if (!gp_reserve_call(named, thread->user, unread))
			return;
		gp_fill_call(&named->detail.call, thread, frame, &written, &computed, result, tid);
		named->detail.call.type = GP_RECORD_NAMED;
		gp_fill_detail(&named->detail, thread, recipe, frame, &written);
		length = bpf_probe_read_user_str(named->name, GP_SYMBOL_LEN, (void *)frame->stream);
		named->name_bytes = length > 0 ? length : 0;
		named->reserved = 0;
		/* Its size may have to be resolved while the process lives. */
		bpf_ringbuf_submit(named, gp_wake_now(GP_RING_MEMORY));
	} else if (recipe->flags & GP_DETAILED) {
		if (!gp_reserve_call(detail, thread->user, unread))
			return;
		gp_fill_call(&detail->call, thread, frame, &written, &computed, result, tid);
		detail->call.type = GP_RECORD_DETAIL;
		gp_fill_detail(detail, thread, recipe, frame, &written);
		bpf_ringbuf_submit(detail, gp_call_flags(result, unread));
	} else {
		if (!gp_reserve_call(call, thread->user, unread))
			return;
		gp_fill_call(call, thread, frame, &written, &computed, result, tid);
		call->type = GP_RECORD_CALL;
		bpf_ringbuf_submit(call, gp_call_flags(result, unread));
	}
}

/* Notes that a graph of the process has memory nodes. */
static __always_inline void gp_note_graph_memory(struct gp_thread *thread, __u32 op)
{
	struct gp_process *process;

	if (op != GP_OP_GRAPH_ALLOCATE && op != GP_OP_GRAPH_FREE && op != GP_OP_GRAPH_NODE)
		return;
	process = gp_find_process(thread->tgid);
	if (process)
		process->graph_memory = 1;
}

/* Whether the ledger needs the call although it is not a memory call. */
static __always_inline bool gp_is_ledger_event(struct gp_thread *thread, __u32 row)
{
	const volatile struct gp_recipe *recipe = &recipes[row & (GP_MAX_ROWS - 1)];
	struct gp_process *process;

	if (!(recipe->flags & GP_LEDGER_EVENT))
		return false;
	/* The ledger needs graph launches only if a graph has memory nodes. */
	if (recipe->op != GP_OP_GRAPH_LAUNCH)
		return true;
	process = gp_find_process(thread->tgid);
	return process && process->graph_memory;
}

/* Applies a returned call that affects launch counting. */
static __always_inline void gp_apply_kernels(struct gp_thread *thread, struct gp_frame *frame,
					     __u32 op, __s32 result)
{
	struct gp_process *process = gp_find_process(thread->tgid);

	if (!process)
		return;
	if (op == GP_OP_CAPTURE_END && result != GP_WRONG_THREAD)
		gp_end_capture(process, frame->stream);
	else if (result)
		return;
	else if (op == GP_OP_CAPTURE_BEGIN)
		gp_begin_capture(process, frame->stream);
	else if (op == GP_OP_MODULE_UNLOAD)
		process->epoch++;
	else
		gp_send_looked_up_name(process, frame);
}

/* Function return, for the open call that it belongs to. */
static __always_inline void gp_return(struct pt_regs *ctx, __u64 cookie)
{
	__u32 row = cookie & (GP_MAX_ROWS - 1);
	__u32 op = recipes[row].op, tid = (__u32)bpf_get_current_pid_tgid();
	__s32 result = (__s32)PT_REGS_RC(ctx);
	__u64 sp = gp_entry_sp(ctx);
	struct gp_thread *thread;
	struct gp_frame *frame;
	__u32 depth, left = 0;

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
		left += gp_is_single(frame->op);
	}
	return;
found:
	thread->depth = depth;
	if (left)
		gp_count_many(single_launches, left);
	if (gp_is_memory(op)) {
		thread->memory_sp = 0;
		gp_send_call(thread, frame, result, tid);
		return;
	}
	if (gp_is_copy(op)) {
		gp_send_copy(thread, gp_find_capturing(thread->tgid), frame, result, tid);
		return;
	}
	if (gp_is_single(op))
		gp_send_launch(thread, frame, result, tid);
	/* Applied first, because the record contains the number of the new context. */
	if (!result && op == GP_OP_CONTEXT_CREATE)
		gp_apply_context(thread, frame, op);
	/* Nodes collected by a failed capture are to be dropped. */
	if ((!result || op == GP_OP_CAPTURE_END) && keep_ledger &&
	    gp_is_ledger_event(thread, row)) {
		gp_note_graph_memory(thread, op);
		gp_send_call(thread, frame, result, tid);
	}
	if (gp_affects_launches(op))
		gp_apply_kernels(thread, frame, op, result);
	else if (!result && op != GP_OP_CONTEXT_CREATE)
		gp_apply_context(thread, frame, op);
}

#endif /* GPUPROBE_CALLS_H */
