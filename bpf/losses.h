/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Losses by process, and the rule that keeps room in a ring: it is open to all while it is
 * less than half full, which is cheap to check; of the rest a process gets at most half, so
 * that there is room for others however much one sends. */
#pragma once

/* Counts a loss, in total and for the current process. */
__noinline int gp_count_loss(__u32 what, __u64 count)
{
	struct gp_loss_key key = {.what = what};
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct gp_loss *loss, fresh = {};

	key.tgid = bpf_get_current_pid_tgid() >> 32;
	loss = bpf_map_lookup_elem(&process_losses, &key);
	if (!loss) {
		fresh.uid = (__u32)bpf_get_current_uid_gid();
		gp_read_comm(fresh.comm, task, true);
		loss = gp_get_or_insert(&process_losses, &key, &fresh);
	}
	if (loss)
		__sync_fetch_and_add(&loss->count, count);
	if (what < sizeof(losses) / sizeof(__u64))
		__sync_fetch_and_add((__u64 *)&losses + what, count);
	return 0;
}

#define GP_LOSS(loss) (offsetof(struct gp_losses, loss) / sizeof(__u64))
#define gp_count_many(loss, count) gp_count_loss(GP_LOSS(loss), count)
#define gp_count(loss) gp_count_many(loss, 1)

/* Charges `bytes` to the current process's share of a ring that is more than half full;
 * `read` and `written` are the positions of the ring. The share is half of the rest. The
 * bytes are counted until the records that were unread at the time have been read, or
 * slightly longer. */
__noinline int gp_spend(__u32 ring, __u64 bytes, __u64 read, __u64 written)
{
	struct gp_flow_key key = {.ring = ring};
	struct gp_flow *flow, fresh = {};

	key.tgid = bpf_get_current_pid_tgid() >> 32;
	flow = gp_get_or_insert(&flows, &key, &fresh);
	if (!flow)
		return 0;
	if (read >= flow->until) {
		flow->before = read >= flow->last ? 0 : flow->spent;
		flow->spent = 0;
		flow->until = written;
	}
	if (flow->before + flow->spent + bytes > half_of_ring[ring & (GP_MAX_RINGS - 1)] / 2)
		return 0;
	__sync_fetch_and_add(&flow->spent, bytes);
	flow->last = written + bytes;
	return 1;
}

/* Bytes of a ring taken by a record of this type. */
#define GP_RING_BYTES(type) ((sizeof(type) + 8 + 7) / 8 * 8)

/* Reserves a record of this type in a ring in which `unread` bytes have not been read;
 * NULL if the ring is full or the process's share, counted in `flow`, is used up. */
#define gp_reserve_as(ring, which, flow, type, unread)                                             \
	((type *)((unread) <= half_of_ring[which] ||                                               \
				  gp_spend(flow, GP_RING_BYTES(type),                              \
					   bpf_ringbuf_query(&ring, BPF_RB_CONS_POS),              \
					   bpf_ringbuf_query(&ring, BPF_RB_PROD_POS))              \
			  ? bpf_ringbuf_reserve(&ring, sizeof(type), 0)                            \
			  : NULL))
#define gp_reserve(ring, which, type, unread) gp_reserve_as(ring, which, which, type, unread)
/* The same; if it is NULL, that is counted as `loss`. */
#define gp_reserve_or_count(loss, ...)                                                             \
	({                                                                                         \
		void *reserved = gp_reserve(__VA_ARGS__);                                          \
		if (!reserved)                                                                     \
			gp_count(loss);                                                            \
		reserved;                                                                          \
	})
/* Bytes in the ring that have not been read. */
#define gp_unread(ring) bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA)

/* About the same for the memory ring, into which the thread is about to send `bytes`. The ring is
 * asked from time to time, and while it is not nearly empty: the positions of a ring are far from
 * all else that a call touches. */
static __always_inline __u64 gp_unread_by(struct gp_thread *thread, __u64 bytes)
{
	if (thread->sent > GP_ASK_BYTES || thread->unread > wake_bytes) {
		thread->unread = gp_unread(memory_ring);
		thread->sent = 0;
	}
	thread->sent += bytes;
	return thread->unread + thread->sent;
}
