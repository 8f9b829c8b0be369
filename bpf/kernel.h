/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Access to kernel structures. */
#pragma once

/* CLOCK_BOOTTIME at which the task, or its group leader, started. */
static __always_inline __u64 gp_start_of(struct task_struct *task, bool of_leader)
{
	return of_leader ? BPF_CORE_READ(task, group_leader, start_boottime)
			 : BPF_CORE_READ(task, start_boottime);
}

/* Process id in the innermost PID namespace. */
static __always_inline __u32 gp_inner_pid(struct task_struct *task)
{
	struct upid *number;
	struct pid *pid;
	__u32 level;

	pid = BPF_CORE_READ(task, group_leader, thread_pid);
	level = BPF_CORE_READ(pid, level);
	number = (struct upid *)&pid->numbers + level;
	return BPF_CORE_READ(number, nr);
}

/* Reads the comm of the task or of its group leader. */
static __always_inline void gp_read_comm(char *comm, struct task_struct *task, bool of_leader)
{
	if (of_leader)
		task = BPF_CORE_READ(task, group_leader);
	bpf_probe_read_kernel_str(comm, GP_COMM_LEN, &task->comm);
}

/* Whether the process continues without the exiting `task`. */
static __always_inline bool gp_outlives(struct task_struct *task)
{
	/* `live` has already been decremented for this thread. */
	return BPF_CORE_READ(task, signal, live.counter) > 0;
}
