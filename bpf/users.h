/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Fair sharing of maps and rings between users, and attribution of losses. A user holds
 * at most half of the entries of a map. A ring is open to all while it is less than
 * half full, which is cheap to check; of the rest a user gets at most half, so that
 * there is room for others however much one user sends. */
#ifndef GPUPROBE_USERS_H
#define GPUPROBE_USERS_H

/* Slots that are probed for a user. With very many users, those without a slot share
 * one. */
#define GP_USER_TRIES 8
#define GP_SLOT_OF_OTHERS 0
/* The kernel's limit for nested user namespaces. */
#define GP_MAX_NAMESPACES 33
/* Time after which a user is assumed to be the only one who sends stack copies. */
#define GP_ALONE_AFTER_NS (10 * GP_COPY_AGAIN_NS)

/* The user to whom the current process is charged: in a user namespace anybody has tens
 * of thousands of ids, so it is the creator of the namespace. Namespaces created by
 * root (for isolated containers) have ids assigned by root. */
__noinline __u32 gp_user_of_current(void)
{
	__u32 uid = (__u32)bpf_get_current_uid_gid(), owner;
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct user_namespace *space;

	space = (struct user_namespace *)BPF_CORE_READ(task, cred, user_ns);
	for (int i = 0; i < GP_MAX_NAMESPACES && space; i++) {
		int level = BPF_CORE_READ(space, level);

		if (level <= 0)
			break;
		owner = BPF_CORE_READ(space, owner.val);
		if (level == 1)
			return owner ? owner : uid;
		space = BPF_CORE_READ(space, parent);
	}
	return uid;
}

/* The slot in `users` of this user. */
__noinline __u32 gp_slot_of(__u32 uid)
{
	__u32 hash = (uid * 0x9e3779b1u) >> 16;

	for (__u32 i = 0; i < GP_USER_TRIES; i++) {
		__u32 slot = (hash + i) & (GP_MAX_USERS - 1);
		__u32 *owner;

		if (slot == GP_SLOT_OF_OTHERS)
			continue;
		owner = bpf_map_lookup_elem(&user_slots, &slot);
		if (!owner) {
			bpf_map_update_elem(&user_slots, &slot, &uid, BPF_NOEXIST);
			owner = bpf_map_lookup_elem(&user_slots, &slot);
		}
		if (owner && *owner == uid)
			return slot;
	}
	return GP_SLOT_OF_OTHERS;
}

static __always_inline struct gp_user *gp_user_at(__u32 slot)
{
	barrier_var(slot);
	return &users[slot & (GP_MAX_USERS - 1)];
}

/* Counts a loss for the current process and its user. The first GP_USER_LOSSES kinds of
 * losses of a user are counted by process. */
__noinline int gp_count_loss(__u32 what, __u64 count)
{
	struct gp_loss_key key = {.uid = gp_user_of_current(), .what = what};
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct gp_user *user = gp_user_at(gp_slot_of(key.uid));
	struct gp_loss *loss, fresh = {};

	key.tgid = bpf_get_current_pid_tgid() >> 32;
	loss = bpf_map_lookup_elem(&user_losses, &key);
	if (!loss && *(volatile __u32 *)&user->losses >= GP_USER_LOSSES) {
		key.tgid = 0;
		loss = bpf_map_lookup_elem(&user_losses, &key);
	}
	if (!loss) {
		if (key.tgid)
			gp_read_comm(fresh.comm, task, true);
		if (!bpf_map_update_elem(&user_losses, &key, &fresh, BPF_NOEXIST))
			__sync_fetch_and_add(&user->losses, 1);
		loss = bpf_map_lookup_elem(&user_losses, &key);
	}
	if (loss)
		__sync_fetch_and_add(&loss->count, count);
	return 0;
}

#define gp_count_many(loss, count)                                                                 \
	({                                                                                         \
		__sync_fetch_and_add(&losses.loss, count);                                         \
		gp_count_loss(offsetof(struct gp_losses, loss) / sizeof(__u64), count);            \
	})
#define gp_count(loss) gp_count_many(loss, 1)

/* Takes one of the `most` map entries that a user may hold; false at the limit.
 * Concurrent callers may fail although one entry was left. */
static __always_inline bool gp_take_entry(__u32 *held, __u32 given_back, __u32 most)
{
	__sync_fetch_and_add(held, 1);
	if (*(volatile __u32 *)held - given_back <= most)
		return true;
	__sync_fetch_and_add(held, -1);
	return false;
}

static __always_inline void gp_give_entry_back(__u32 *held)
{
	__sync_fetch_and_add(held, -1);
}

/* The entry of `map` under `key`, created from `zero` if there is none and its user is
 * below the limit. The `user` member of an entry is the slot of its user. */
#define gp_get_or_take(map, key, zero, slot)                                                       \
	({                                                                                         \
		struct gp_user *taker = gp_user_at(slot);                                          \
		typeof(zero) *value = bpf_map_lookup_elem(&map, key);                              \
		if (!value && gp_take_entry(&taker->map, 0, most.map)) {                           \
			if (bpf_map_update_elem(&map, key, &zero, BPF_NOEXIST))                    \
				gp_give_entry_back(&taker->map);                                   \
			value = bpf_map_lookup_elem(&map, key);                                    \
			if (value)                                                                 \
				value->user = slot;                                                \
		}                                                                                  \
		value;                                                                             \
	})

/* Removes an entry that counts against a user. */
#define gp_remove_taken(map, key)                                                                  \
	({                                                                                         \
		typeof(no_##map) *value = bpf_map_lookup_elem(&map, key);                          \
		__u32 slot = value ? value->user : 0;                                              \
		if (value && !bpf_map_delete_elem(&map, key))                                      \
			gp_give_entry_back(&gp_user_at(slot)->map);                                \
	})

/* Charges `bytes` to a user's share of a ring that is more than half full; `read` and
 * `written` are the positions of the ring. The share is half of the rest. A user's
 * bytes are counted until the records that were unread at the time have been read, or
 * slightly longer. */
__noinline int gp_spend(__u32 slot, __u32 ring, __u64 bytes, __u64 read, __u64 written)
{
	struct gp_flow *flow;

	barrier_var(ring);
	ring &= GP_MAX_RINGS - 1;
	flow = &gp_user_at(slot)->flows[ring];
	if (read >= flow->until) {
		flow->before = read >= flow->last ? 0 : flow->spent;
		flow->spent = 0;
		flow->until = written;
	}
	if (flow->before + flow->spent + bytes > half_of_ring[ring] / 2)
		return 0;
	__sync_fetch_and_add(&flow->spent, bytes);
	flow->last = written + bytes;
	return 1;
}

/* Bytes of a ring taken by a record of this type. */
#define GP_RING_BYTES(type) ((sizeof(type) + 8 + 7) / 8 * 8)

/* Reserves a record of this type in a ring in which `unread` bytes have not been read;
 * NULL if the ring is full or the user's share, counted in `flow`, is used up. */
#define gp_reserve_as(ring, which, flow, slot, type, unread)                                       \
	((type *)((unread) <= half_of_ring[which] ||                                               \
				  gp_spend(slot, flow, GP_RING_BYTES(type),                        \
					   bpf_ringbuf_query(&ring, BPF_RB_CONS_POS),              \
					   bpf_ringbuf_query(&ring, BPF_RB_PROD_POS))              \
			  ? bpf_ringbuf_reserve(&ring, sizeof(type), 0)                            \
			  : NULL))
#define gp_reserve(ring, which, slot, type, unread)                                                \
	gp_reserve_as(ring, which, which, slot, type, unread)
/* Bytes in the ring that have not been read. */
#define gp_unread(ring) bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA)

/* Takes `each` from the copies sent for each GP_COPY_AGAIN_NS that has passed. */
static __always_inline void gp_refill_copy_tokens(__u64 *since_ns, __u64 *sent, __u64 now,
						  __u64 each)
{
	__u64 paid = (now - *since_ns) / GP_COPY_AGAIN_NS * each;

	if (!paid)
		return;
	*since_ns = now;
	*sent = *sent > paid ? *sent - paid : 0;
}

/* Whether another stack copy may be sent now: with several users, each gets at most
 * half. */
static __always_inline bool gp_may_copy(__u32 slot, __u64 now)
{
	struct gp_user *user = gp_user_at(slot);

	if (copies_user && copies_user != slot)
		copies_shared_ns = now;
	copies_user = slot;
	gp_refill_copy_tokens(&copies_since_ns, &copies_sent, now, GP_MAX_COPIES);
	gp_refill_copy_tokens(&user->copies_since_ns, &user->copies_sent, now, GP_MAX_COPIES / 2);
	if (stack_mode != GP_STACKS_AUTO)
		return true;
	if (user->copies_sent < GP_MAX_COPIES_AT_ONCE / 2)
		user->copies_sent++;
	else if (copies_shared_ns && now - copies_shared_ns < GP_ALONE_AFTER_NS)
		return false;
	if (copies_sent >= GP_MAX_COPIES_AT_ONCE)
		return false;
	copies_sent++;
	return true;
}

#endif /* GPUPROBE_USERS_H */
