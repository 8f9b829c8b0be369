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

#define GP_SIZE_UNKNOWN (~0ULL)

/* Bytes of one copy of a batch, of which the size or the CUDA_MEMCPY3D_BATCH_OP is at `at`.
 * GP_SIZE_UNKNOWN for arrays, whose extent is in elements of a size that only the array
 * knows. */
__noinline __u64 gp_copy_bytes(__u64 at, __u32 shape)
{
	__u32 source = 0, destination = 0;
	__u64 extent[3], bytes;

	if (shape != GP_SHAPE_CUBOIDS)
		return bpf_probe_read_user(&bytes, sizeof(bytes), (void *)at) ? GP_SIZE_UNKNOWN
									      : bytes;
	if (bpf_probe_read_user(&source, sizeof(source), (void *)(at + GP_CUBOID_SOURCE_TYPE_AT)) ||
	    bpf_probe_read_user(&destination, sizeof(destination),
				(void *)(at + GP_CUBOID_DESTINATION_TYPE_AT)) ||
	    bpf_probe_read_user(extent, sizeof(extent), (void *)(at + GP_CUBOID_EXTENT_AT)) ||
	    source != GP_OPERAND_POINTER || destination != GP_OPERAND_POINTER)
		return GP_SIZE_UNKNOWN;
	return extent[0] * extent[1] * extent[2];
}

/* Bytes of all `count` copies of a batch, or GP_SIZE_UNKNOWN. */
__noinline __u64 gp_all_bytes(__u64 at, __u64 count, __u32 shape)
{
	__u64 sum = 0, bytes;

	if (count > GP_MAX_BATCH)
		return GP_SIZE_UNKNOWN;
	for (__u32 i = 0; i < GP_MAX_BATCH && i < count; i++) {
		bytes = gp_copy_bytes(at, shape);
		if (bytes == GP_SIZE_UNKNOWN)
			return GP_SIZE_UNKNOWN;
		sum += bytes;
		at += shape == GP_SHAPE_CUBOIDS ? GP_CUBOID_BYTES : sizeof(__u64);
	}
	return sum;
}

/* Fills in the size and the kinds of a copy's frame; false if the size is unknown. */
static __always_inline bool gp_enter_copy(struct gp_arguments *arguments,
					  const volatile struct gp_recipe *recipe,
					  struct gp_frame *frame)
{
	frame->stack = 0;
	frame->size = gp_value_of(arguments, &recipe->size);
	if (recipe->op == GP_OP_COPY_BATCH) {
		frame->size = gp_all_bytes(frame->size, gp_value_of(arguments, &recipe->factors[0]),
					   recipe->shape);
		if (frame->size == GP_SIZE_UNKNOWN)
			return false;
	} else {
		for (int i = 0; i < 2; i++)
			if (gp_value_of(arguments, &recipe->unless[i]))
				return false;
		frame->size *= gp_factor(arguments, recipe);
	}
	frame->device = (__s32)gp_value_of(arguments, &recipe->device);
	frame->second = (__u16)gp_value_of(arguments, &recipe->second);
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
	if (recipes[frame->row & (GP_MAX_ROWS - 1)].shape == GP_SHAPE_ADDRESSES ||
	    frame->device == GP_KIND_BY_ADDRESS || frame->second == GP_KIND_BY_ADDRESS)
		bpf_ringbuf_submit(copy, gp_wake_now(GP_RING_ACTIVITY));
	else
		bpf_ringbuf_submit(copy, gp_wake_flags(GP_RING_ACTIVITY, unread));
	return 0;
}
