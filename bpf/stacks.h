/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Call stacks, captured at function entry, because a uretprobe hides the caller at
 * return.
 *
 * Libraries without frame pointers can be unwound only with their unwind tables, which
 * is done in user space from a copy of the stack. As a copy is expensive, it is made
 * once per call path: user space then enters the positions of the path's return
 * addresses into `paths`. From then on the path is recognised by reading exactly these
 * addresses, all of them, so that a stack is never confused with another one of the
 * same depth. */
#pragma once

/* Mixes the addresses of the walk into `state`. */
__noinline __u64 gp_hash_walk(struct gp_walk *walk, __u64 state)
{
	if (!walk)
		return 0;
	for (__u32 i = 0; i < GP_MAX_DEPTH && i < walk->record.count; i++)
		state = gp_mix(state, walk->record.addresses[i]);
	return state;
}

/* Adds the return addresses that uretprobes, gpuprobe's or others', have replaced. */
static __always_inline void gp_fill_replaced(struct gp_stack *stack)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct return_instance *instance;

	stack->replaced_count = 0;
	__builtin_memset(stack->replaced, 0, sizeof(stack->replaced));
	instance = BPF_CORE_READ(task, utask, return_instances);
	for (int i = 0; i < GP_MAX_REPLACED && instance; i++) {
		stack->replaced[i].at = BPF_CORE_READ(instance, stack);
		stack->replaced[i].original = BPF_CORE_READ(instance, orig_ret_vaddr);
		stack->replaced_count = i + 1;
		instance = BPF_CORE_READ(instance, next);
	}
}

/* Copies the stack from `sp` upwards, page by page, to its end. */
static __always_inline __u32 gp_copy_stack(__u8 *bytes, __u32 size, __u64 sp, __u64 room)
{
	__u32 first = GP_PAGE - (sp & (GP_PAGE - 1)), done = 0;

	if (first <= GP_PAGE && bpf_probe_read_user(bytes, first, (void *)sp) == 0)
		done = first;
	for (__u32 i = 0; done && i < GP_MAX_STACK_BYTES / GP_PAGE; i++) {
		barrier_var(done);
		if (done > size - GP_PAGE || done >= room)
			break;
		if (bpf_probe_read_user(bytes + done, GP_PAGE, (void *)(sp + done)))
			break;
		done += GP_PAGE;
	}
	return done;
}

/* Whether the stack has at least `bytes` more bytes. */
static __always_inline bool gp_reaches(struct gp_walk *walk, __u32 bytes)
{
	__u8 byte;

	return bytes < walk->room &&
	       bpf_probe_read_user(&byte, sizeof(byte), (void *)(walk->record.sp + bytes)) == 0;
}

GP_LONG_RECORD(gp_stack_small, gp_stack, stack, bytes, GP_SMALL_STACK_BYTES + 4096);
GP_LONG_RECORD(gp_stack_medium, gp_stack, stack, bytes, GP_MEDIUM_STACK_BYTES + 4096);
GP_LONG_RECORD(gp_stack_large, gp_stack, stack, bytes, GP_MAX_STACK_BYTES);

/* User space may cache the path as soon as the record is submitted, and then removes
 * the entry in sent_copies: it must exist before. */
#define gp_send_stack_of(record_type, walk, sent)                                                  \
	({                                                                                         \
		__u64 key = (walk)->record.copy_key;                                               \
		struct record_type *copy = gp_reserve(stack_ring, GP_RING_STACKS,                  \
						      struct record_type, gp_unread(stack_ring));  \
		if (copy) {                                                                        \
			bpf_probe_read_kernel(&copy->stack, sizeof(copy->stack), &(walk)->record); \
			copy->stack.copied = gp_copy_stack(copy->bytes, sizeof(copy->bytes),       \
							   (walk)->record.sp, (walk)->room);       \
			if (stack_mode == GP_STACKS_AUTO)                                          \
				bpf_map_update_elem(&sent_copies, &key, sent, BPF_ANY);            \
			bpf_ringbuf_submit(copy, gp_wake_now(GP_RING_STACKS));                     \
		}                                                                                  \
		copy != NULL;                                                                      \
	})

/* Sends the walk with a copy of the stack; false if the ring is full. */
static __always_inline bool gp_send_stack_copy(struct gp_walk *walk, struct gp_sent *sent)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	/* Beyond the base of the main thread's stack are its arguments and environment. A very
	 * large number if the stack is another. */
	walk->room = BPF_CORE_READ(task, mm, start_stack) - walk->record.sp;
	walk->record.id = sent->id;
	gp_fill_replaced(&walk->record);
	if (gp_reaches(walk, GP_MEDIUM_STACK_BYTES))
		return gp_send_stack_of(gp_stack_large, walk, sent);
	if (gp_reaches(walk, GP_SMALL_STACK_BYTES))
		return gp_send_stack_of(gp_stack_medium, walk, sent);
	return gp_send_stack_of(gp_stack_small, walk, sent);
}

/* Sends the walk, unless it was sent. Returns the stack id, or 0. */
static __always_inline __u64 gp_send_walk(struct gp_walk *walk, __u64 hash)
{
	struct gp_stack *stack;
	__u32 one = 1;

	if (bpf_map_lookup_elem(&sent_walks, &hash))
		return hash;
	stack = gp_reserve_or_count(stacks, stack_ring, GP_RING_STACKS, struct gp_stack,
				    gp_unread(stack_ring));
	if (!stack)
		return 0;
	walk->record.id = hash;
	gp_fill_replaced(&walk->record);
	bpf_probe_read_kernel(stack, sizeof(*stack), &walk->record);
	bpf_ringbuf_submit(stack, gp_wake_now(GP_RING_STACKS));
	/* Last, because an entry here means that the record is in the ring. */
	bpf_map_update_elem(&sent_walks, &hash, &one, BPF_ANY);
	return hash;
}

/* Whether another stack copy may be sent now. Each GP_COPY_AGAIN_NS pays for
 * GP_MAX_COPIES. */
static __always_inline bool gp_may_copy(__u64 now)
{
	__u64 paid = (now - copies_since_ns) / GP_COPY_AGAIN_NS * GP_MAX_COPIES;

	if (paid) {
		copies_since_ns = now;
		copies_sent = copies_sent > paid ? copies_sent - paid : 0;
	}
	if (stack_mode != GP_STACKS_AUTO)
		return true;
	if (copies_sent >= GP_MAX_COPIES_AT_ONCE)
		return false;
	copies_sent++;
	return true;
}

/* The stack id of a recent copy of a stack with the same hash, or of a copy that is
 * sent now. User space is about to cache the path. */
__noinline __u64 gp_send_copy_once(struct gp_walk *walk, __u64 hash)
{
	__u64 now = bpf_ktime_get_ns(), copy_key;
	struct gp_sent *before = NULL;
	struct gp_sent sent = {};

	/* In other modes the maps do not exist. */
	if (!walk || stack_mode < GP_STACKS_COPY)
		return 0;
	copy_key = stack_mode == GP_STACKS_AUTO ? gp_stack_hash(walk, hash)
						: gp_mix(hash, walk->record.sp);
	walk->record.copy_key = copy_key;
	sent.time_ns = now;
	sent.id = gp_mix(copy_key, now) | 1;
	if (stack_mode == GP_STACKS_AUTO)
		before = bpf_map_lookup_elem(&sent_copies, &copy_key);
	if (before && now - before->time_ns < GP_COPY_AGAIN_NS)
		return before->id;
	if (!gp_may_copy(now) || !gp_send_stack_copy(walk, &sent)) {
		gp_count(stack_copies);
		return gp_send_walk(walk, hash);
	}
	return sent.id;
}

/* Captures the native call stack of the function being entered. Returns its stack id,
 * or 0. */
static __always_inline __u64 gp_take_native_stack(struct pt_regs *ctx, __u64 sp,
						  struct gp_thread *thread, struct gp_walk *walk)
{
	__u64 ip = PT_REGS_IP(ctx), return_address, root, hash, id;
	struct gp_stack *record;
	long bytes;

	return_address = gp_return_address(thread, walk, sp);
	root = gp_path_root(thread->process, ip, return_address, sp);
	if (stack_mode == GP_STACKS_AUTO) {
		id = gp_cached_path(thread, walk, root, sp);
		if (id)
			return id;
	}
	record = &walk->record;
	record->type = GP_RECORD_STACK;
	record->tgid = thread->tgid;
	record->process = thread->process;
	record->root = root;
	record->return_address = return_address;
	record->ip = ip;
	record->sp = sp;
	record->fp = PT_REGS_FP(ctx);
	record->is_stale = 0;
	record->copied = 0;
	record->copy_key = 0;
	/* Along the frame pointers. */
	bytes = bpf_get_stack(ctx, record->addresses, sizeof(record->addresses), BPF_F_USER_STACK);
	record->count = bytes > 0 ? bytes / sizeof(__u64) : 0;
	hash = gp_hash_walk(walk, root) | 1;
	if (stack_mode == GP_STACKS_FRAME_POINTERS)
		return gp_send_walk(walk, hash);
	return gp_send_copy_once(walk, hash);
}

/* A free buffer for a stack, to be given back; NULL if there is none. */
static __always_inline struct gp_walk *gp_take_walk(void)
{
	/* The verifier takes what comes back from an exchange for anything. */
#pragma unroll
	for (__u32 i = 0; i < GP_WALKS_AT_ONCE; i++) {
		__u32 index = i;
		struct gp_walk *walk = bpf_map_lookup_elem(&walks, &index);

		if (walk && !__sync_lock_test_and_set(&walk->is_used, 1))
			return walk;
	}
	return NULL;
}

/* Captures the call stack of the function being entered, including Python frames.
 * Returns its stack id, or 0. */
static __always_inline __u64 gp_take_stack(struct pt_regs *ctx, __u64 sp, struct gp_thread *thread,
					   __u32 tid)
{
	struct gp_walk *walk = gp_take_walk();
	__u64 stack;

	if (!walk) {
		gp_count(stacks);
		return 0;
	}
	stack = gp_take_native_stack(ctx, sp, thread, walk);
	if (stack && take_python)
		stack = gp_with_python(walk, thread, tid, stack);
	walk->is_used = 0;
	return stack;
}
