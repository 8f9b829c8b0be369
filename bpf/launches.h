/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Launch counters, updated at entry. Launches are sent to user space one by one only
 * for a recording: a busy program makes a hundred thousand per second. The name of a
 * kernel is determined at its first launch. */
#pragma once

/* Offset of the pointer to the mangled name in the object of a CUfunction or CUkernel:
 * undocumented, observed with driver 580. User space checks it against names that
 * programs look up, and ignores it if they differ. */
#define GP_HANDLE_NAME 8

/* ---- capture ------------------------------------------------------------ */

/* Handles of the default streams, which are equal in all threads. The legacy default
 * stream (0, unless the program is built for per-thread ones) is never captured. */
#define GP_STREAM_DEFAULT 0
#define GP_STREAM_PER_THREAD 2

static __always_inline struct gp_capture_key gp_stream_key(struct gp_process *process, __u64 stream)
{
	struct gp_capture_key key = {.id = stream, .process = process->id};

	if (stream == GP_STREAM_DEFAULT || stream == GP_STREAM_PER_THREAD) {
		key.id = (__u32)bpf_get_current_pid_tgid();
		key.what = GP_CAPTURE_OWN;
	}
	return key;
}

/* The process if it has open captures, else NULL. */
static __always_inline struct gp_process *gp_find_capturing(__u32 tgid)
{
	struct gp_process *process = open_captures ? gp_find_process(tgid) : NULL;

	return process && process->captures ? process : NULL;
}

static __always_inline bool gp_is_open(struct gp_process *process, __u32 number)
{
	struct gp_capture_key key = {.id = number, .process = process->id, .what = GP_CAPTURE_OPEN};

	return bpf_map_lookup_elem(&captures, &key);
}

/* The capture that a call on `stream` by the current thread goes into; NULL if it is
 * executed. */
static __always_inline struct gp_capture *gp_capture_of(struct gp_process *process, __u64 stream)
{
	struct gp_capture_key key;
	struct gp_capture *capture;

	if (!process->captures)
		return NULL;
	key = gp_stream_key(process, stream);
	capture = bpf_map_lookup_elem(&captures, &key);
	return capture && gp_is_open(process, capture->number) ? capture : NULL;
}

/* Also after an error, since an invalidated capture has ended, too. A stream that has
 * only joined the capture does not end it. */
static __always_inline void gp_end_capture(struct gp_process *process, __u64 stream)
{
	struct gp_capture *capture = gp_capture_of(process, stream);
	struct gp_capture_key key = {.process = process->id, .what = GP_CAPTURE_OPEN};

	if (!capture || !capture->began)
		return;
	key.id = capture->number;
	if (bpf_map_delete_elem(&captures, &key))
		return;
	__sync_fetch_and_add(&process->captures, -1);
	__sync_fetch_and_add(&open_captures, -1);
}

static __always_inline void gp_begin_capture(struct gp_process *process, __u64 stream)
{
	struct gp_capture_key by_stream = gp_stream_key(process, stream);
	struct gp_capture_key open = {.process = process->id, .what = GP_CAPTURE_OPEN};
	struct gp_capture capture = {.began = 1};

	/* A capture whose end was not seen. */
	gp_end_capture(process, stream);
	/* 0 and GP_CONTEXT_UNKNOWN are reserved. */
	capture.number = 1 + process->captured++ % (GP_CONTEXT_UNKNOWN - 1);
	open.id = capture.number;
	bpf_map_update_elem(&captures, &by_stream, &capture, BPF_ANY);
	bpf_map_update_elem(&captures, &open, &capture, BPF_ANY);
	__sync_fetch_and_add(&process->captures, 1);
	__sync_fetch_and_add(&open_captures, 1);
}

/* A stream is destroyed, and with it its capture. */
__noinline int gp_forget_stream(__u64 stream)
{
	struct gp_process *process = gp_find_capturing(bpf_get_current_pid_tgid() >> 32);
	struct gp_capture_key key;

	if (!process)
		return 0;
	key = gp_stream_key(process, stream);
	gp_end_capture(process, stream);
	bpf_map_delete_elem(&captures, &key);
	return 0;
}

/* A stream that waits for an event of a captured stream joins its capture. The handle
 * of a destroyed stream may be reused. Events are frequent, captures are rare. */
static __always_inline void gp_on_stream(struct gp_arguments *arguments,
					 const volatile struct gp_recipe *recipe)
{
	struct gp_process *process = gp_find_capturing(bpf_get_current_pid_tgid() >> 32);
	struct gp_capture_key event = {.what = GP_CAPTURE_EVENT}, key;
	struct gp_capture joined = {}, *capture;
	__u64 stream;

	if (!process)
		return;
	stream = gp_value_of(arguments, &recipe->stream);
	event.id = gp_value_of(arguments, &recipe->address);
	event.process = process->id;
	key = gp_stream_key(process, stream);
	switch (recipe->op) {
	case GP_OP_STREAM_DESTROY:
		gp_forget_stream(stream);
		return;
	case GP_OP_EVENT_RECORD:
		capture = gp_capture_of(process, stream);
		if (!capture) {
			bpf_map_delete_elem(&captures, &event);
			return;
		}
		joined.number = capture->number;
		bpf_map_update_elem(&captures, &event, &joined, BPF_ANY);
		return;
	case GP_OP_STREAM_WAIT:
		capture = bpf_map_lookup_elem(&captures, &event);
		if (!capture || !gp_is_open(process, capture->number) ||
		    gp_capture_of(process, stream))
			return;
		joined.number = capture->number;
		bpf_map_update_elem(&captures, &key, &joined, BPF_ANY);
		return;
	}
}

/* ---- names -------------------------------------------------------------- */

GP_LONG_RECORD(gp_kernel_record, gp_kernel, kernel, name, GP_NAME_LEN);

/* Grid and block of a launch. */
struct gp_shape {
	__u32 numbers[6];
};

/* Sends the name at user address `name` (0: none) for the kernel `key`, with the shape of the
 * launch, if there is one. */
__noinline int gp_send_kernel(struct gp_launch_key *key, __u64 name, __u32 given,
			      const struct gp_shape *shape)
{
	struct gp_kernel_record *record =
		gp_reserve_or_count(names, activity_ring, GP_RING_ACTIVITY, struct gp_kernel_record,
				    gp_unread(activity_ring));
	struct gp_kernel *kernel;
	long length = 0;

	if (!record)
		return 0;
	kernel = &record->kernel;
	kernel->type = GP_RECORD_KERNEL;
	kernel->given = given;
	kernel->tgid = bpf_get_current_pid_tgid() >> 32;
	if (key)
		kernel->key = *key;
	__builtin_memset(kernel->grid, 0, sizeof(kernel->grid) + sizeof(kernel->block));
	if (shape)
		__builtin_memcpy(kernel->grid, shape, sizeof(kernel->grid) + sizeof(kernel->block));
	if (name)
		length = bpf_probe_read_user_str(record->name, GP_NAME_LEN, (void *)name);
	kernel->name_bytes = length > 0 ? length : 0;
	kernel->reserved = 0;
	bpf_ringbuf_submit(record, gp_wake_now(GP_RING_ACTIVITY));
	return 0;
}

/* Address of the name in the handle's object; 0 if unreadable. */
static __always_inline __u64 gp_name_in_handle(__u64 handle)
{
	__u64 name = 0;

	bpf_probe_read_user(&name, sizeof(name), (void *)(handle + GP_HANDLE_NAME));
	return name;
}

/* Sends the name by which a program looked up a kernel, and the one in the handle for
 * comparison. */
static __always_inline void gp_send_looked_up_name(struct gp_process *process,
						   struct gp_frame *frame)
{
	struct gp_launch_key key = {
		.process = process->id, .row = frame->row, .epoch = process->epoch};

	if (bpf_probe_read_user(&key.handle, sizeof(key.handle), (void *)frame->out))
		return;
	gp_send_kernel(&key, frame->address, true, NULL);
	gp_send_kernel(&key, gp_name_in_handle(key.handle), false, NULL);
}

/* ---- launches ----------------------------------------------------------- */

/* Reads grid and block of a launch: six numbers. */
static __always_inline void gp_read_shape(struct gp_arguments *arguments, __u8 shape,
					  __u32 *numbers)
{
	__u64 *registers = arguments->registers;

	switch (shape) {
	case GP_SHAPE_ARGUMENTS:
		for (int i = 0; i < 5; i++)
			numbers[i] = registers[i + 1];
		bpf_probe_read_user(&numbers[5], sizeof(*numbers), (void *)arguments->stack);
		break;
	case GP_SHAPE_CONFIG:
		bpf_probe_read_user(numbers, 6 * sizeof(*numbers), (void *)registers[0]);
		break;
	case GP_SHAPE_DIM3:
		numbers[0] = registers[1];
		numbers[1] = registers[1] >> 32;
		numbers[2] = registers[2];
		numbers[3] = registers[3];
		numbers[4] = registers[3] >> 32;
		numbers[5] = registers[4];
		break;
	}
}

/* Creates the entry for `key` and sends its name to user space; NULL if the process is not traced.
 */
static __always_inline struct gp_launch_count *
gp_first_launch(struct gp_arguments *arguments, const volatile struct gp_recipe *recipe, __u32 tgid,
		struct gp_launch_key *key)
{
	struct gp_process *process = gp_find_process(tgid);
	struct gp_launch_count none = {};
	struct gp_launch_count *count;
	struct gp_shape shape = {};
	__u64 name = 0;

	if (!process) {
		if (!gp_is_target(tgid))
			return NULL;
		process = gp_process_of(tgid);
	}
	if (!process) {
		gp_count(launches);
		return NULL;
	}
	/* Of two threads that get here at once, only one creates the entry. */
	if (!bpf_map_update_elem(&launches, key, &none, BPF_NOEXIST)) {
		gp_announce_process(process);
		gp_read_shape(arguments, recipe->shape, shape.numbers);
		if (recipe->op == GP_OP_LAUNCH)
			name = gp_name_in_handle(key->handle);
		gp_send_kernel(key, name, false, &shape);
	}
	count = bpf_map_lookup_elem(&launches, key);
	if (!count)
		gp_count(launches);
	return count;
}

/* Counts a launch. Returns whether it is captured, and its gp_launch_key.epoch from bit 16. */
__noinline __u32 gp_count_launch(struct gp_arguments *arguments, __u32 row)
{
	const volatile struct gp_recipe *recipe = &recipes[row & (GP_MAX_ROWS - 1)];
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct gp_launch_count *count;
	struct gp_process *process;
	struct gp_launch_key key;
	bool captured = false;

	/* Without counting, the map does not exist. */
	if (!count_launches || !arguments)
		return 0;
	key.handle = gp_value_of(arguments, &recipe->address);
	key.process = gp_process_id();
	key.row = row;
	key.epoch = 0;
	process = open_captures || unloaders ? gp_find_process(tgid) : NULL;
	if (process) {
		key.epoch = process->epoch;
		captured = gp_capture_of(process, gp_value_of(arguments, &recipe->stream));
	}
	count = bpf_map_lookup_elem(&launches, &key);
	if (!count)
		count = gp_first_launch(arguments, recipe, tgid, &key);
	/* Atomic although per CPU: the thread may be preempted in between. */
	if (count && captured)
		__sync_fetch_and_add(&count->captured, 1);
	else if (count)
		__sync_fetch_and_add(&count->runs, 1);
	return captured | key.epoch << 16;
}

/* Entry of a launch that is only counted. Nearly all are of a known kernel, and need neither their
 * recipe nor much code: each line of either is one that the program has evicted. */
static __always_inline void gp_on_launch(struct pt_regs *ctx, __u64 cookie)
{
	struct gp_launch_key key = {.row = cookie & (GP_MAX_ROWS - 1)};
	struct gp_launch_count *count = NULL;
	__u64 first = PT_REGS_PARM1(ctx), second = PT_REGS_PARM2(ctx);
	struct gp_arguments arguments;

	/* The compiler would choose a place in the context, which may be at a constant only. */
	barrier_var(first);
	barrier_var(second);
	if (!open_captures && !unloaders) {
		key.handle = cookie & GP_COOKIE_SECOND ? second : first;
		key.process = gp_process_id();
		count = bpf_map_lookup_elem(&launches, &key);
	}
	if (count) {
		__sync_fetch_and_add(&count->runs, 1);
		return;
	}
	gp_read_arguments(ctx, &arguments);
	gp_count_launch(&arguments, key.row);
}

/* Entry of an operation of a stream. */
static __always_inline void gp_on_entry(struct pt_regs *ctx, __u64 cookie)
{
	struct gp_arguments arguments;

	gp_read_arguments(ctx, &arguments);
	gp_on_stream(&arguments, &recipes[cookie & (GP_MAX_ROWS - 1)]);
}

/* ---- single launches ---------------------------------------------------- */

/* Whether the call is sent as a single launch at its return. */
static __always_inline bool gp_is_single(__u32 op)
{
	return stream_launches && (op == GP_OP_LAUNCH || op == GP_OP_GRAPH_LAUNCH);
}

static __always_inline bool gp_is_copy(__u32 op)
{
	return take_copies && (op == GP_OP_COPY || op == GP_OP_COPY_BATCH);
}

/* Whether the call stack of a call is taken; for launches, which are frequent, only on
 * request. */
static __always_inline bool gp_wants_stack(const volatile struct gp_recipe *recipe, __u32 op)
{
	if (stack_mode == GP_STACKS_OFF)
		return false;
	if (gp_is_copy(op))
		return true;
	return gp_is_single(op) ? launch_stacks : recipe->flags & GP_FLAG_WITH_STACK;
}

/* Sends the returned launch in `frame`. */
__noinline int gp_send_launch(struct gp_thread *thread, struct gp_frame *frame, __s32 result,
			      __u32 tid)
{
	__u64 end_ns = bpf_ktime_get_ns(), unread;
	struct gp_launch *launch;

	if (!thread || !frame)
		return 0;
	if (!thread->announced)
		gp_announce(thread);
	unread = gp_unread(activity_ring);
	launch = gp_reserve_or_count(single_launches, activity_ring, GP_RING_ACTIVITY,
				     struct gp_launch, unread);
	if (!launch)
		return 0;
	launch->type = GP_RECORD_LAUNCH;
	launch->captured = frame->captured;
	launch->result = result;
	launch->tgid = thread->tgid;
	launch->tid = tid;
	launch->key.handle = frame->address;
	launch->key.process = thread->process;
	launch->key.row = frame->row;
	launch->key.epoch = frame->epoch;
	launch->start_ns = frame->start_ns;
	launch->end_ns = end_ns;
	launch->stream = frame->stream;
	__builtin_memcpy(launch->grid, frame->shape, sizeof(launch->grid));
	__builtin_memcpy(launch->block, frame->shape + 3, sizeof(launch->block));
	launch->stack = frame->stack;
	bpf_ringbuf_submit(launch, gp_wake_flags(GP_RING_ACTIVITY, unread));
	return 0;
}
