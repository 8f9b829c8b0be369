/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Which device a thread is on, learnt from what it does with CUDA contexts.
 * Everything here runs when the call has returned successfully.
 */
#ifndef GPUPROBE_CONTEXTS_H
#define GPUPROBE_CONTEXTS_H

static __always_inline struct gp_current *gp_current_of(struct gp_thread *thread)
{
	return &thread->current[thread->level & (GP_MAX_CONTEXTS - 1)];
}

static __always_inline void gp_teach(struct gp_thread *thread, __u64 context, __u32 device)
{
	struct gp_context_key key = {
		.context = context,
		.process = thread->process,
	};

	if (context && bpf_map_update_elem(&contexts, &key, &device, BPF_ANY))
		gp_count(contexts);
}

static __always_inline __s32 gp_device_of_context(struct gp_thread *thread, __u64 context)
{
	struct gp_context_key key = {
		.context = context,
		.process = thread->process,
	};
	__u32 *device = bpf_map_lookup_elem(&contexts, &key);

	return device ? (__s32)*device : GP_DEVICE_UNKNOWN;
}

static __always_inline void gp_make_current(struct gp_thread *thread, __u64 context)
{
	struct gp_current *current = gp_current_of(thread);

	current->context = context;
	current->device = context ? gp_device_of_context(thread, context) : GP_DEVICE_UNKNOWN;
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
	struct gp_current *current;

	if (!thread->overflow && thread->level) {
		thread->level--;
		return;
	}
	/* Below is what was current before we looked, or was overwritten. */
	if (thread->overflow)
		thread->overflow--;
	current = gp_current_of(thread);
	current->context = 0;
	current->device = GP_DEVICE_UNKNOWN;
}

/* The index of the device that the thread's calls go to, or unknown. */
static __always_inline __s32 gp_current_device(struct gp_thread *thread)
{
	struct gp_current *current = gp_current_of(thread);
	struct gp_process *process;

	if (current->device == GP_DEVICE_UNKNOWN && current->context)
		current->device = gp_device_of_context(thread, current->context);
	if (current->device == GP_DEVICE_DEFAULT)
		return 0;
	if (current->device >= 0)
		return current->device;
	process = gp_known_process(thread->tgid);
	return process && process->devices == 1 ? 0 : GP_DEVICE_UNKNOWN;
}

/* Applies the context call in `frame`, which has succeeded. */
static __always_inline void gp_apply_context(struct gp_thread *thread, struct gp_frame *frame,
					     __u32 op)
{
	struct gp_current *current = gp_current_of(thread);
	__u64 context = 0;
	__u32 number = 0;

	switch (op) {
	case GP_OP_CONTEXT_CREATE:
	case GP_OP_CONTEXT_RETAIN:
		if (bpf_probe_read_user(&context, sizeof(context), (void *)frame->out))
			return;
		gp_teach(thread, context, frame->device);
		if (op == GP_OP_CONTEXT_CREATE)
			gp_push(thread, context);
		return;
	case GP_OP_CONTEXT_SET:
		gp_make_current(thread, frame->address);
		return;
	case GP_OP_CONTEXT_PUSH:
		gp_push(thread, frame->address);
		return;
	case GP_OP_CONTEXT_POP:
		gp_pop(thread);
		return;
	case GP_OP_CONTEXT_GET:
		if (!bpf_probe_read_user(&context, sizeof(context), (void *)frame->out) &&
		    context != current->context)
			gp_make_current(thread, context);
		return;
	case GP_OP_DEVICE_SET:
		current->device = frame->device;
		return;
	}
	/* The rest reports a number. */
	if (bpf_probe_read_user(&number, sizeof(number), (void *)frame->out))
		return;
	if (op == GP_OP_DEVICE_COUNT) {
		struct gp_process *process = gp_known_process(thread->tgid);

		if (process)
			process->devices = number;
		return;
	}
	if (op == GP_OP_CONTEXT_DEVICE && frame->address)
		gp_teach(thread, frame->address, number);
	else
		gp_teach(thread, current->context, number);
	if (op == GP_OP_DEVICE_GET || !frame->address || frame->address == current->context)
		current->device = number;
}

#endif /* GPUPROBE_CONTEXTS_H */
