/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Sending of records, with batched wake-ups of the reader. */
#pragma once

/* A record with up to `most` bytes behind its header. */
#define GP_LONG_RECORD(name, type, header, rest, most)                                             \
	struct name {                                                                              \
		struct type header;                                                                \
		__u8 rest[most];                                                                   \
	}

/* Wakes the reader for this record, unless it is about to read anyway: data that it
 * needs may disappear with the process. */
static __always_inline __u64 gp_wake_now(enum gp_ring which)
{
	if (wake_pending[which])
		return BPF_RB_NO_WAKEUP;
	wake_pending[which] = 1;
	return BPF_RB_FORCE_WAKEUP;
}

/* The reader is woken once when enough bytes were unread before this record, and again
 * only after it has cleared wake_pending: a wake-up is an interrupt. */
static __always_inline __u64 gp_wake_flags(enum gp_ring which, __u64 unread)
{
	return unread < wake_bytes ? BPF_RB_NO_WAKEUP : gp_wake_now(which);
}

/* Whether the thread, or its group leader, was traced from its start: it, or its
 * program, started after the libraries had been probed. */
__noinline int gp_traced_from_start(__u64 task, __u32 of_leader, __u32 tgid)
{
	__u64 born = gp_start_of((struct task_struct *)task, of_leader);
	__u64 *late = bpf_map_lookup_elem(&late_views, &tgid);
	__u64 *program = bpf_map_lookup_elem(&programs, &tgid);

	if (program && *program > born)
		born = *program;

	return attached_boot_ns && born > attached_boot_ns && (!late || born > *late);
}

/* Sends a task record of `type` about the task at `at`, with the name at `new_name`; without
 * one, it is the thread's own for a thread and the leader's for a process. True if it was
 * sent. Names count against the process's share of the ring; exits, which are no more than
 * starts, do not. */
__noinline int gp_send_task(__u32 type, __u32 process, __u64 at, __u64 new_name)
{
	struct task_struct *task = (struct task_struct *)at;
	bool of_process = type == GP_RECORD_PROCESS;
	__u64 unread = gp_unread(memory_ring);
	struct upid *number;
	struct gp_task *record;

	if (of_process || type == GP_RECORD_THREAD)
		record = gp_reserve(memory_ring, GP_RING_MEMORY, struct gp_task, unread);
	else
		record = bpf_ringbuf_reserve(&memory_ring, sizeof(*record), 0);
	if (!record) {
		gp_count(tasks);
		return 0;
	}
	record->type = type;
	record->tgid = BPF_CORE_READ(task, tgid);
	record->tid = BPF_CORE_READ(task, pid);
	record->from_birth = of_process && gp_traced_from_start(at, true, record->tgid);
	record->uid = (__u32)bpf_get_current_uid_gid();
	record->process = process;
	number = gp_number_at(gp_pid_of(task), gp_level_of(gp_pid_of(task)));
	record->inner_pid = BPF_CORE_READ(number, nr);
	record->cgroup = bpf_get_current_cgroup_id();
	record->time_ns = bpf_ktime_get_ns();
	record->start_boot_ns = gp_start_of(task, true);
	__builtin_memset(record->comm, 0, sizeof(record->comm));
	if (new_name)
		bpf_probe_read_kernel_str(record->comm, sizeof(record->comm), (void *)new_name);
	else
		gp_read_comm(record->comm, task, of_process);
	/* User space reads further data of a process before it exits. */
	if (of_process)
		bpf_ringbuf_submit(record, gp_wake_now(GP_RING_MEMORY));
	else
		bpf_ringbuf_submit(record, gp_wake_flags(GP_RING_MEMORY, unread));
	return 1;
}

/* Sends a notice about the current process, which runs `image`; false if the ring is
 * full. The process is stopped, if enabled, until user space has attached: before its next
 * instruction, and only if the notice was sent, because only its reader resumes it. */
static __always_inline bool gp_send_notice(__u16 type, __u32 tgid, const struct gp_image *image)
{
	struct gp_notice *notice = gp_reserve_or_count(notices, control_ring, GP_RING_CONTROL,
						       struct gp_notice, gp_unread(control_ring));

	if (!notice)
		return false;
	notice->type = type;
	notice->held = hold_targets && !ending && bpf_map_lookup_elem(&targets, &tgid) &&
		       bpf_send_signal(GP_SIGSTOP) == 0;
	notice->tgid = tgid;
	notice->image = *image;
	bpf_ringbuf_submit(notice, BPF_RB_FORCE_WAKEUP);
	return true;
}
