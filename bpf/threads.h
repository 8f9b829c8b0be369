/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* State of threads and processes that call CUDA. */
#pragma once

static __always_inline bool gp_is_target(__u32 tgid)
{
	return !only_targets || bpf_map_lookup_elem(&targets, &tgid);
}

/* NULL if the process has not called a traced function yet. */
static __always_inline struct gp_process *gp_find_process(__u32 tgid)
{
	return bpf_map_lookup_elem(&processes, &tgid);
}

static __always_inline struct gp_process *gp_process_of(__u32 tgid)
{
	struct gp_process *process = gp_find_process(tgid);
	struct gp_process fresh = {};

	if (process)
		return process;
	/* Unique among live processes, and almost certainly among successive processes
	 * with the same PID. */
	fresh.id = tgid << GP_PROCESS_PID_SHIFT |
		   (bpf_ktime_get_ns() >> 16 & ((1 << GP_PROCESS_PID_SHIFT) - 1));
	return gp_get_or_insert(&processes, &tgid, &fresh);
}

/* The state of the current thread, created at its first traced call; NULL if it is not
 * traced or the map is full. */
static __always_inline struct gp_thread *gp_thread_of(__u64 pid_tgid)
{
	__u32 tid = (__u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gp_thread *thread = bpf_map_lookup_elem(&threads, &tid);
	struct gp_process *process;
	struct task_struct *task;

	if (thread && thread->tgid == tgid)
		return thread;
	if (!gp_is_target(tgid))
		return NULL;
	process = gp_process_of(tgid);
	if (!process)
		return NULL;
	/* State of another process whose exit was not seen. */
	if (thread)
		bpf_map_delete_elem(&threads, &tid);
	thread = gp_get_or_insert(&threads, &tid, &no_threads);
	if (!thread)
		return NULL;
	task = (struct task_struct *)bpf_get_current_task();
	thread->tgid = tgid;
	thread->process = process->id;
	if (gp_traced_from_start(task, false, tgid)) {
		thread->current[0].device = GP_DEVICE_DEFAULT;
	} else {
		thread->current[0].device = GP_DEVICE_UNKNOWN;
		thread->current[0].number = GP_CONTEXT_UNKNOWN;
	}
	return thread;
}

/* Sends the process record, unless it was sent. */
static __always_inline void gp_announce_process(struct gp_process *process)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!process->announced)
		process->announced = gp_send_task(GP_RECORD_PROCESS, process->id, task, NULL);
}

/* Sends the process and thread records before the first record that refers to them.
 * Failures are retried at the next call. */
static __always_inline void gp_announce(struct gp_thread *thread)
{
	struct task_struct *task;
	struct gp_process *process;

	if (thread->announced)
		return;
	task = (struct task_struct *)bpf_get_current_task();
	process = gp_find_process(thread->tgid);
	if (process)
		gp_announce_process(process);
	thread->announced = gp_send_task(GP_RECORD_THREAD, thread->process, task, NULL);
}
