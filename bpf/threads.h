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

/* The id of the current process: unique among live ones, and almost certainly among successive
 * processes and programs with the same PID. Without a look at a map. */
static __always_inline __u32 gp_process_id(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 begun = task->group_leader->start_boottime + task->self_exec_id;

	begun *= (__u64)GP_MIX_HIGH << 32 | GP_MIX_LOW;
	return task->tgid << GP_PROCESS_PID_SHIFT | begun >> (64 - GP_PROCESS_PID_SHIFT);
}

static __always_inline struct gp_process *gp_process_of(__u32 tgid)
{
	struct gp_process *process = gp_find_process(tgid);
	struct gp_process fresh = {};

	if (process)
		return process;
	fresh.id = gp_process_id();
	fresh.leader = (__u64)bpf_get_current_task_btf()->group_leader;
	return gp_get_or_insert(&processes, &tgid, &fresh);
}

/* Creates the state of the current thread; false if it is not traced or a map is full. */
__noinline int gp_create_thread(__u32 tgid, __u32 tid)
{
	struct gp_process *process;
	struct gp_thread *thread;

	if (!gp_is_target(tgid))
		return 0;
	process = gp_process_of(tgid);
	if (!process)
		return 0;
	/* There may be that of another process whose exit was not seen. */
	bpf_map_delete_elem(&threads, &tid);
	thread = gp_get_or_insert(&threads, &tid, &no_threads);
	if (!thread)
		return 0;
	thread->tgid = tgid;
	thread->process = process->id;
	if (gp_traced_from_start(bpf_get_current_task(), false, tgid)) {
		thread->current[0].device = GP_DEVICE_DEFAULT;
	} else {
		thread->current[0].device = GP_DEVICE_UNKNOWN;
		thread->current[0].number = GP_CONTEXT_UNKNOWN;
	}
	return 1;
}

/* The state of the current thread, created at its first traced call; NULL if it is not
 * traced or the map is full. */
static __always_inline struct gp_thread *gp_thread_of(__u64 pid_tgid)
{
	__u32 tid = (__u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gp_thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread && thread->tgid == tgid)
		return thread;
	return gp_create_thread(tgid, tid) ? bpf_map_lookup_elem(&threads, &tid) : NULL;
}

/* Sends the process record, unless it was sent. */
static __always_inline void gp_announce_process(struct gp_process *process)
{
	if (!process->announced)
		process->announced =
			gp_send_task(GP_RECORD_PROCESS, process->id, bpf_get_current_task(), 0);
}

/* Sends the process and thread records before the first record that refers to them.
 * Failures are retried at the next call. */
__noinline int gp_announce(struct gp_thread *thread)
{
	struct gp_process *process;

	if (!thread)
		return 0;
	process = gp_find_process(thread->tgid);
	if (process)
		gp_announce_process(process);
	thread->announced =
		gp_send_task(GP_RECORD_THREAD, thread->process, bpf_get_current_task(), 0);
	return 0;
}
