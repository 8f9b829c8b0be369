/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Current device of threads, derived from their CUDA context calls. Everything here
 * runs after a call has returned successfully. */
#pragma once

static __always_inline struct gp_current *gp_current_of(struct gp_thread *thread)
{
	return &thread->current[thread->level & (GP_MAX_CONTEXTS - 1)];
}

static __always_inline struct gp_context *gp_context_of(struct gp_thread *thread, __u64 context)
{
	struct gp_context_key key = {.context = context, .process = thread->process};

	return bpf_map_lookup_elem(&contexts, &key);
}

/* Stores a context. With an unknown number, it keeps its previous one. */
static __always_inline void gp_store_context(struct gp_thread *thread, __u64 context, __s32 device,
					     __u32 number)
{
	struct gp_context_key key = {.context = context, .process = thread->process};
	struct gp_context *known = bpf_map_lookup_elem(&contexts, &key);
	struct gp_context fresh = {.device = device, .number = number};

	if (!context)
		return;
	if (known && number == GP_CONTEXT_UNKNOWN)
		fresh.number = known->number;
	if (bpf_map_update_elem(&contexts, &key, &fresh, BPF_ANY))
		gp_count(contexts);
}

static __always_inline void gp_make_current(struct gp_thread *thread, __u64 context)
{
	struct gp_current *current = gp_current_of(thread);
	struct gp_context *known = gp_context_of(thread, context);

	current->context = context;
	current->device = context && known ? known->device : GP_DEVICE_UNKNOWN;
	current->number = known ? known->number : GP_CONTEXT_UNKNOWN;
}

static __always_inline void gp_push(struct gp_thread *thread, __u64 context)
{
	if (thread->level + 1 < GP_MAX_CONTEXTS)
		thread->level++;
	else
		thread->overflow++;
	gp_make_current(thread, context);
}

static __always_inline void gp_pop(struct gp_thread *thread)
{
	if (!thread->overflow && thread->level) {
		thread->level--;
		return;
	}
	/* The context below was current before tracing began, or was overwritten. */
	if (thread->overflow)
		thread->overflow--;
	gp_make_current(thread, 0);
}

/* Device index of the thread's calls, or unknown. */
static __always_inline __s32 gp_current_device(struct gp_thread *thread)
{
	struct gp_current *current = gp_current_of(thread);
	struct gp_process *process;

	if (current->device == GP_DEVICE_UNKNOWN && current->context)
		gp_make_current(thread, current->context);
	if (current->device == GP_DEVICE_DEFAULT)
		return 0;
	if (current->device >= 0)
		return current->device;
	process = gp_find_process(thread->tgid);
	if (!process || process->devices != 1)
		return GP_DEVICE_UNKNOWN;
	current->device = 0;
	return 0;
}

/* Stores a new context with a number, so that its allocations can be identified when it
 * is destroyed. */
static __always_inline void gp_create_context(struct gp_thread *thread, __u64 context, __s32 device)
{
	struct gp_process *process = gp_find_process(thread->tgid);
	__u32 number = GP_CONTEXT_UNKNOWN;

	/* 0 and GP_CONTEXT_UNKNOWN are reserved. */
	if (process)
		number = 1 + process->contexts++ % (GP_CONTEXT_UNKNOWN - 1);
	gp_store_context(thread, context, device, number);
	gp_push(thread, context);
}

/* A destroyed context is popped from the stack of the destroying thread, and its
 * address may be reused. */
static __always_inline void gp_destroy_context(struct gp_thread *thread, __u64 context)
{
	struct gp_context_key key = {.context = context, .process = thread->process};

	bpf_map_delete_elem(&contexts, &key);
	if (gp_current_of(thread)->context == context)
		gp_pop(thread);
}

/* Applies a call that reports the number of a device, or of devices. */
static __always_inline void gp_apply_number(struct gp_thread *thread, struct gp_frame *frame,
					    __u32 op)
{
	struct gp_current *current = gp_current_of(thread);
	__u32 number = 0;

	if (bpf_probe_read_user(&number, sizeof(number), (void *)frame->out))
		return;
	if (op == GP_OP_DEVICE_COUNT) {
		struct gp_process *process = gp_find_process(thread->tgid);

		if (process)
			process->devices = number;
		return;
	}
	if (op == GP_OP_CONTEXT_DEVICE && frame->address)
		gp_store_context(thread, frame->address, number, GP_CONTEXT_UNKNOWN);
	else
		gp_store_context(thread, current->context, number, GP_CONTEXT_UNKNOWN);
	if (op == GP_OP_DEVICE_GET || !frame->address || frame->address == current->context)
		current->device = number;
}

/* Applies the successful context call in `frame`. */
__noinline int gp_apply_context(struct gp_thread *thread, struct gp_frame *frame, __u32 op)
{
	struct gp_current *current;
	struct gp_context *whole;
	__u64 context = 0;

	if (!thread || !frame)
		return 0;
	current = gp_current_of(thread);
	switch (op) {
	case GP_OP_CONTEXT_PART:
		whole = gp_context_of(thread, frame->address);
		frame->device = whole ? whole->device : GP_DEVICE_UNKNOWN;
		/* fall through */
	case GP_OP_CONTEXT_CREATE:
	case GP_OP_CONTEXT_RETAIN:
		if (bpf_probe_read_user(&context, sizeof(context), (void *)frame->out))
			return 0;
		if (op == GP_OP_CONTEXT_CREATE)
			gp_create_context(thread, context, frame->device);
		else
			gp_store_context(thread, context, frame->device, 0);
		break;
	case GP_OP_CONTEXT_DESTROY:
		gp_destroy_context(thread, frame->address);
		break;
	case GP_OP_CONTEXT_SET:
		gp_make_current(thread, frame->address);
		break;
	case GP_OP_CONTEXT_PUSH:
		gp_push(thread, frame->address);
		break;
	case GP_OP_CONTEXT_POP:
		gp_pop(thread);
		break;
	case GP_OP_CONTEXT_GET:
		if (!bpf_probe_read_user(&context, sizeof(context), (void *)frame->out) &&
		    context != current->context)
			gp_make_current(thread, context);
		break;
	case GP_OP_DEVICE_SET:
		/* The primary context becomes current; the nested driver call has set
		 * which one. */
		current->device = frame->device;
		current->number = 0;
		break;
	case GP_OP_DEVICE_GET:
	case GP_OP_DEVICE_COUNT:
	case GP_OP_CONTEXT_DEVICE:
		gp_apply_number(thread, frame, op);
		break;
	}
	return 0;
}
