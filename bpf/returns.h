/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Return of traced functions: what their call was, for user space and for the thread. */
#pragma once

/* Reads the values written by the call in `frame` into its record and `out`; false if
 * one is unreadable. */
static __always_inline bool gp_read_written(const volatile struct gp_recipe *recipe,
					    struct gp_frame *frame, struct gp_call *call,
					    __u64 *out)
{
	if (recipe->out.place != GP_PLACE_NONE &&
	    bpf_probe_read_user(out, sizeof(*out), (void *)frame->out) && gp_is_memory(frame->op))
		return false;
	if (recipe->address.place == GP_PLACE_NONE)
		call->address = *out;
	if (recipe->flags & GP_FLAG_SIZE_AT_RETURN) {
		if (bpf_probe_read_user(&call->size, sizeof(call->size), (void *)frame->size) &&
		    gp_is_memory(frame->op))
			return false;
		call->size *= frame->factor;
	}
	return true;
}

/* The times of a returned call. A block exists from the return of its allocation to the
 * entry of its free: if no duration is needed, the other times are not read. */
static __always_inline void gp_fill_times(struct gp_call *call, struct gp_frame *frame)
{
	call->start_ns = frame->start_ns;
	if (!call_durations && frame->op == GP_OP_FREE)
		call->end_ns = call->start_ns;
	else
		call->end_ns = bpf_ktime_get_ns();
	if (!call_durations && frame->op == GP_OP_ALLOCATE)
		call->start_ns = call->end_ns;
}

/* Fills in what is computed of a returned call. Before its record is reserved: with
 * branches there, it would be verified once for each size of the record. */
static __always_inline void gp_fill_call(struct gp_call *call, struct gp_thread *thread,
					 const volatile struct gp_recipe *recipe,
					 struct gp_frame *frame)
{
	bool on_stream = gp_is_memory(frame->op) && recipe->stream.place != GP_PLACE_NONE;
	struct gp_process *process = NULL;
	struct gp_capture *capture;
	struct gp_context *about;

	if (on_stream || frame->op == GP_OP_CAPTURE_END)
		process = gp_find_capturing(thread->tgid);
	gp_fill_times(call, frame);
	if (recipe->device.place != GP_PLACE_NONE)
		call->device = frame->device;
	else
		call->device = gp_current_device(thread);
	call->context = gp_current_of(thread)->number;
	call->stack = 0;
	if (recipe->flags & GP_FLAG_WITH_STACK)
		call->stack = gp_is_memory(frame->op) ? thread->stack : frame->stack;
	if (frame->op == GP_OP_CONTEXT_DESTROY) {
		about = gp_context_of(thread, frame->address);
		call->context = about ? about->number : GP_CONTEXT_UNKNOWN;
	} else if (frame->op == GP_OP_CAPTURE_END) {
		capture = process && call->result != GP_WRONG_THREAD
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

static __always_inline void gp_fill_detail(struct gp_detail *detail, struct gp_thread *thread,
					   const volatile struct gp_recipe *recipe,
					   struct gp_frame *frame, struct gp_call *call, __u64 out)
{
	detail->call = *call;
	detail->out = out;
	detail->stream = frame->stream;
	__builtin_memset(detail->values, 0, sizeof(detail->values));
	if (recipe->flags & GP_FLAG_OUT_BYTES)
		bpf_probe_read_user(detail->values, sizeof(detail->values), (void *)frame->out);
	else if (gp_is_memory(frame->op))
		__builtin_memcpy(detail->values, thread->extra, sizeof(detail->values));
}

#define gp_reserve_call(record, unread)                                                            \
	((record) = gp_reserve_or_count(ring_full, memory_ring, GP_RING_MEMORY, typeof(*(record)), \
					unread))

/* After an out-of-memory error the reader is woken at once, because the GPU's free
 * memory soon changes. */
static __always_inline __u64 gp_call_flags(__s32 result, __u64 unread)
{
	if (result == GP_OUT_OF_MEMORY)
		return gp_wake_now(GP_RING_MEMORY);
	return gp_wake_flags(GP_RING_MEMORY, unread);
}

GP_LONG_RECORD(gp_named_record, gp_named, named, name, GP_SYMBOL_LEN);

/* Sends the returned call in `frame` to the ledger. */
__noinline int gp_send_call(struct gp_thread *thread, struct gp_frame *frame, __s32 result,
			    __u32 tid)
{
	const volatile struct gp_recipe *recipe;
	struct gp_call call = {.result = result, .tid = tid};
	struct gp_call *plain;
	struct gp_detail *detail;
	struct gp_named_record *record;
	struct gp_named *named;
	__u64 out = 0, unread;
	long length = 0;

	if (!thread || !frame)
		return 0;
	recipe = &recipes[frame->row & (GP_MAX_ROWS - 1)];
	call.row = frame->row;
	call.tgid = thread->tgid;
	call.address = frame->address;
	call.size = frame->size;
	if (!thread->announced)
		gp_announce(thread);
	if (!result && !gp_read_written(recipe, frame, &call, &out)) {
		gp_count(unreadable);
		return 0;
	}
	gp_fill_call(&call, thread, recipe, frame);
	unread = gp_unread_by(thread, sizeof(call));
	if (recipe->flags & GP_FLAG_NAMED) {
		if (!gp_reserve_call(record, unread))
			return 0;
		named = &record->named;
		gp_fill_detail(&named->detail, thread, recipe, frame, &call, out);
		named->detail.call.type = GP_RECORD_NAMED;
		length =
			bpf_probe_read_user_str(record->name, GP_SYMBOL_LEN, (void *)frame->stream);
		named->name_bytes = length > 0 ? length : 0;
		named->reserved = 0;
		/* Its size may have to be resolved while the process lives. */
		bpf_ringbuf_submit(record, gp_wake_now(GP_RING_MEMORY));
	} else if (recipe->flags & GP_FLAG_DETAILED) {
		if (!gp_reserve_call(detail, unread))
			return 0;
		gp_fill_detail(detail, thread, recipe, frame, &call, out);
		detail->call.type = GP_RECORD_DETAIL;
		bpf_ringbuf_submit(detail, gp_call_flags(result, unread));
	} else {
		if (!gp_reserve_call(plain, unread))
			return 0;
		*plain = call;
		plain->type = GP_RECORD_CALL;
		bpf_ringbuf_submit(plain, gp_call_flags(result, unread));
	}
	return 0;
}

/* Whether the ledger needs the call although it is not a memory call: of launches of graphs only
 * those of a process of which a graph has memory nodes, which is noted here. */
static __always_inline bool gp_is_ledger_event(struct gp_thread *thread, __u32 row)
{
	const volatile struct gp_recipe *recipe = &recipes[row & (GP_MAX_ROWS - 1)];
	struct gp_process *process;
	__u32 op = recipe->op;

	if (!(recipe->flags & GP_FLAG_LEDGER_EVENT))
		return false;
	process = gp_find_process(thread->tgid);
	if (process &&
	    (op == GP_OP_GRAPH_ALLOCATE || op == GP_OP_GRAPH_FREE || op == GP_OP_GRAPH_NODE))
		process->graph_memory = 1;
	return op != GP_OP_GRAPH_LAUNCH || (process && process->graph_memory);
}

/* Applies a returned call that affects launch counting. */
__noinline int gp_apply_kernels(struct gp_thread *thread, struct gp_frame *frame, __u32 op,
				__s32 result)
{
	struct gp_process *process = thread ? gp_find_process(thread->tgid) : NULL;

	if (!process || !frame)
		return 0;
	if (op == GP_OP_CAPTURE_END && result != GP_WRONG_THREAD)
		gp_end_capture(process, frame->stream);
	else if (result)
		return 0;
	else if (op == GP_OP_CAPTURE_BEGIN)
		gp_begin_capture(process, frame->stream);
	else if (op == GP_OP_MODULE_UNLOAD)
		__sync_fetch_and_add(&unloaders, !process->epoch++);
	else if (count_launches)
		gp_send_looked_up_name(process, frame);
	return 0;
}

/* Closes the open call of a thread that a return belongs to. */
static __always_inline void gp_close_call(struct pt_regs *ctx, struct gp_thread *thread, __u32 row,
					  __u32 tid)
{
	__u32 op = recipes[row].op;
	__s32 result = (__s32)PT_REGS_RC(ctx);
	__u64 sp = PT_REGS_SP(ctx) - GP_RETURN_ADDRESS_BYTES; /* as at entry */
	__u32 depth = thread->depth, left = 0;
	struct gp_frame *frame;

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
	if (result == GP_NCCL_IN_PROGRESS && recipes[row].flags & GP_FLAG_IN_PROGRESS)
		result = 0;
	if (left)
		gp_count_many(single_launches, left);
	if (gp_is_memory(op)) {
		thread->memory_sp = 0;
		gp_send_call(thread, frame, result, tid);
		return;
	}
	if (gp_is_copy(op)) {
		if (op == GP_OP_COPY_BATCH)
			gp_send_copies(thread, frame, result, tid);
		else
			gp_send_copy(thread, frame, result, tid);
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
		gp_send_call(thread, frame, result, tid);
		left = op == GP_OP_OBJECT_CREATE ? frame->size : 0;
		for (__u32 i = 1; i < GP_MAX_OBJECTS && i < left; i++) {
			frame->out += sizeof(__u64);
			gp_send_call(thread, frame, result, tid);
		}
	}
	if (gp_affects_launches(op))
		gp_apply_kernels(thread, frame, op, result);
	else if (!result && op != GP_OP_CONTEXT_CREATE)
		gp_apply_context(thread, frame, op);
}

/* Function return. */
static __always_inline void gp_return(struct pt_regs *ctx, __u64 cookie)
{
	__u32 row = cookie & (GP_MAX_ROWS - 1);
	__u32 op = recipes[row].op, tid = (__u32)bpf_get_current_pid_tgid();
	struct gp_thread *thread;
	__u64 start_ns;

	if (op == GP_OP_SELF_TEST) {
		selftest_seen |= 2;
		return;
	}
	if (gp_is_checkpoint(op))
		gp_end_checkpoint(op, bpf_get_current_pid_tgid(), (__s32)PT_REGS_RC(ctx));
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread)
		return;
	start_ns = gp_begin_hit(thread);
	gp_close_call(ctx, thread, row, tid);
	gp_end_hit(thread, start_ns);
}
