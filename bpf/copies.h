/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Copies and memsets. */
#pragma once

/* cudaMemcpyDefault and CU_MEMORYTYPE_UNIFIED have the same number. */
#define GP_KIND_BY_ADDRESS 4

/* Product of unit, height and depth by which `size` is multiplied. */
static __always_inline __u64 gp_factor(struct gp_arguments *arguments,
				       const volatile struct gp_recipe *recipe)
{
	__u64 factor = recipe->scale;

	for (int i = 0; i < 2; i++)
		if (recipe->factors[i].place != GP_PLACE_NONE)
			factor *= gp_value_of(arguments, &recipe->factors[i]);
	return factor;
}

/* Fills in the size and the kinds of a copy's frame; false if the size is unknown. Of a batch,
 * the frame has until the return the addresses of the arrays, and as `factor` its length. */
static __always_inline bool gp_enter_copy(struct gp_arguments *arguments,
					  const volatile struct gp_recipe *recipe,
					  struct gp_frame *frame)
{
	frame->stack = 0;
	frame->size = gp_value_of(arguments, &recipe->size);
	frame->device = (__s32)gp_value_of(arguments, &recipe->device);
	frame->second = (__u16)gp_value_of(arguments, &recipe->second);
	if (recipe->op == GP_OP_COPY_BATCH) {
		frame->factor = 1;
		if (recipe->factors[0].place != GP_PLACE_NONE)
			frame->factor = gp_value_of(arguments, &recipe->factors[0]);
		if (gp_value_of(arguments, &recipe->factors[1]) > 1)
			frame->device = -1; /* several locations */
		return true;
	}
	for (int i = 0; i < 2; i++)
		if (gp_value_of(arguments, &recipe->unless[i]))
			return false;
	frame->size *= gp_factor(arguments, recipe);
	return true;
}

__noinline int gp_send_copy(struct gp_thread *thread, struct gp_frame *frame, __s32 result,
			    __u32 tid)
{
	__u64 end_ns = bpf_ktime_get_ns(), unread;
	struct gp_process *process;
	struct gp_copy *copy;

	if (!thread || !frame)
		return 0;
	process = gp_find_capturing(thread->tgid);
	if (!thread->announced)
		gp_announce(thread);
	unread = gp_unread(activity_ring);
	copy = gp_reserve_or_count(copies, activity_ring, GP_RING_ACTIVITY, struct gp_copy, unread);
	if (!copy)
		return 0;
	copy->type = GP_RECORD_COPY;
	copy->row = frame->row;
	copy->result = result;
	copy->tgid = thread->tgid;
	copy->tid = tid;
	copy->start_ns = frame->start_ns;
	copy->end_ns = end_ns;
	copy->bytes = frame->size;
	copy->destination = frame->address;
	copy->source = frame->out;
	copy->kind = frame->device;
	copy->second = frame->second;
	copy->stack = frame->stack;
	copy->captured = process && gp_capture_of(process, frame->stream);
	if (frame->op == GP_OP_COPY_BATCH
		    ? !frame->second
		    : recipes[frame->row & (GP_MAX_ROWS - 1)].shape == GP_SHAPE_ADDRESSES ||
			      frame->device == GP_KIND_BY_ADDRESS ||
			      frame->second == GP_KIND_BY_ADDRESS)
		bpf_ringbuf_submit(copy, gp_wake_now(GP_RING_ACTIVITY));
	else
		bpf_ringbuf_submit(copy, gp_wake_flags(GP_RING_ACTIVITY, unread));
	return 0;
}

/* Reads the CUDA_MEMCPY3D_BATCH_OP at `at` into the frame of its batch; 0 for one with an array,
 * whose extent is in elements of a size that only the array knows. */
__noinline int gp_read_cuboid(struct gp_frame *frame, __u64 at)
{
	__u32 source = 0, destination = 0;
	__u64 extent[3];

	if (!frame ||
	    bpf_probe_read_user(&source, sizeof(source), (void *)(at + GP_CUBOID_SOURCE_AT)) ||
	    bpf_probe_read_user(&destination, sizeof(destination),
				(void *)(at + GP_CUBOID_DESTINATION_AT)) ||
	    bpf_probe_read_user(extent, sizeof(extent), (void *)(at + GP_CUBOID_EXTENT_AT)) ||
	    source != GP_OPERAND_POINTER || destination != GP_OPERAND_POINTER)
		return 0;
	frame->size = extent[0] * extent[1] * extent[2];
	at += GP_OPERAND_ADDRESS_AT;
	return !bpf_probe_read_user(&frame->out, sizeof(frame->out),
				    (void *)(at + GP_CUBOID_SOURCE_AT)) &&
	       !bpf_probe_read_user(&frame->address, sizeof(frame->address),
				    (void *)(at + GP_CUBOID_DESTINATION_AT));
}

/* Sends a copy of the batch in `frame`, of which the size or the CUDA_MEMCPY3D_BATCH_OP is at `at`.
 * A function of its own, which the verifier does not follow for each copy. */
__noinline int gp_send_one(struct gp_thread *thread, struct gp_frame *frame, __u64 at,
			   __u64 destination, __u64 source)
{
	bool is_read;

	if (!thread || !frame)
		return 0;
	if (!destination)
		is_read = gp_read_cuboid(frame, at);
	else
		is_read = !bpf_probe_read_user(&frame->size, sizeof(frame->size), (void *)at) &&
			  !bpf_probe_read_user(&frame->address, sizeof(frame->address),
					       (void *)destination) &&
			  (!source ||
			   !bpf_probe_read_user(&frame->out, sizeof(frame->out), (void *)source));
	if (!is_read) {
		gp_count(copies);
		return 0;
	}
	gp_send_copy(thread, frame, 0, (__u32)bpf_get_current_pid_tgid());
	frame->second++;
	return 0;
}

/* Sends the copies of a returned batch, each with its number: they may have different directions.
 */
__noinline int gp_send_copies(struct gp_thread *thread, struct gp_frame *frame, __s32 result,
			      __u32 tid)
{
	__u64 destination, source, at, count, step = sizeof(__u64), next, from;

	if (!thread || !frame)
		return 0;
	destination = frame->address;
	source = frame->out;
	at = frame->size;
	count = frame->factor;
	if (result) {
		frame->size = 0;
		return gp_send_copy(thread, frame, result, tid);
	}
	/* Not all have arrays of both. */
	if (!destination)
		step = GP_CUBOID_BYTES;
	next = destination ? sizeof(__u64) : 0;
	from = source ? sizeof(__u64) : 0;
	for (__u32 i = 0; i < GP_MAX_BATCH && i < count; i++) {
		gp_send_one(thread, frame, at, destination, source);
		at += step;
		destination += next;
		source += from;
	}
	if (count > GP_MAX_BATCH)
		gp_count_many(copies, count - GP_MAX_BATCH);
	return 0;
}
