/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Activity batches of the collector inside a process: a few hundred records each,
 * forwarded unchanged. */
#pragma once

GP_LONG_RECORD(gp_batch_record, gp_batch, batch, bytes, GP_MAX_BATCH_BYTES);

/* Counts a lost batch, also in its process: the next batch reveals the gap, which must
 * not be counted twice. The number of records in its header is not trustworthy. */
static __always_inline void gp_count_lost_batch(struct gp_process *process, __u64 batch)
{
	__u32 records = 0;

	bpf_probe_read_user(&records, sizeof(records), (void *)(batch + GP_BATCH_RECORDS_AT));
	if (records > GP_MAX_BATCH_RECORDS)
		records = GP_MAX_BATCH_RECORDS;
	gp_count_many(activity, records ?: 1);
	if (process)
		__sync_fetch_and_add(&process->activity_lost, records ?: 1);
}

/* Sends a batch; false if the ring is full or it is unreadable. */
static __always_inline bool gp_send_batch(struct gp_process *process, __u64 batch, __u64 bytes)
{
	__u64 unread = gp_unread(batch_ring);
	struct gp_batch_record *record =
		gp_reserve(batch_ring, GP_RING_BATCHES, struct gp_batch_record, unread);

	if (!record)
		return false;
	barrier_var(bytes);
	if (bytes > sizeof(record->bytes) ||
	    bpf_probe_read_user(record->bytes, bytes, (void *)batch)) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return false;
	}
	record->batch.type = GP_RECORD_BATCH;
	record->batch.reserved = 0;
	record->batch.tgid = bpf_get_current_pid_tgid() >> 32;
	record->batch.process = process->id;
	record->batch.bytes = bytes;
	record->batch.lost = process->activity_lost;
	bpf_ringbuf_submit(record, gp_wake_flags(GP_RING_BATCHES, unread));
	return true;
}

/* Probe at gpuprobe_activity_batch(batch, bytes). */
static __always_inline void gp_on_batch(struct pt_regs *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u64 batch = PT_REGS_PARM1(ctx), bytes = PT_REGS_PARM2(ctx);
	struct gp_process *process;

	if (!gp_is_target(tgid))
		return;
	process = gp_process_of(tgid);
	if (process)
		gp_announce_process(process);
	if (!process || !gp_send_batch(process, batch, bytes))
		gp_count_lost_batch(process, batch);
}
