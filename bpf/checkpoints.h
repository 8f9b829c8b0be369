/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* cuCheckpointProcessCheckpoint and -Restore, which name a process by its PID as the caller sees
 * it. The caller is often another process, which need not be traced. */
#pragma once

#define gp_is_checkpoint(op) ((op) == GP_OP_CHECKPOINT || (op) == GP_OP_RESTORE)

/* Thread -> the first argument of its open call. LRU; the return of an evicted call is ignored. */
GP_MAP(checkpoints, LRU_HASH, 256, __u64, __u64);

struct gp_search {
	__u64 namespace; /* in which the process has the number `pid` */
	__u32 level;     /* its depth */
	int pid;
	__u64 leader; /* the process that is found, as in gp_process */
	__u32 process;
};

/* Whether `process` is the one that is looked for, with which the search ends. */
static long gp_is_named(void *map, __u32 *tgid, struct gp_process *process,
			struct gp_search *search)
{
	struct pid *pid = gp_pid_of((struct task_struct *)process->leader);
	struct upid *number = gp_number_at(pid, search->level);

	(void)map, (void)tgid;
	if (gp_level_of(pid) < search->level || BPF_CORE_READ(number, nr) != search->pid ||
	    (__u64)BPF_CORE_READ(number, ns) != search->namespace)
		return 0;
	search->process = process->id;
	search->leader = process->leader;
	return 1;
}

/* At the return of a call: user space is told if the process that it names is traced. */
__noinline int gp_end_checkpoint(__u32 op, __u64 pid_tgid, __s32 result)
{
	struct pid *own = gp_pid_of((struct task_struct *)bpf_get_current_task());
	__u64 *named = bpf_map_lookup_elem(&checkpoints, &pid_tgid);
	struct gp_search search = {};
	struct upid *number;

	if (!named || result)
		return 0;
	search.pid = *named;
	search.level = gp_level_of(own);
	number = gp_number_at(own, search.level);
	search.namespace = (__u64)BPF_CORE_READ(number, ns);
	bpf_map_delete_elem(&checkpoints, &pid_tgid);
	bpf_for_each_map_elem(&processes, gp_is_named, &search, 0);
	if (search.leader)
		gp_send_task(op == GP_OP_CHECKPOINT ? GP_RECORD_CHECKPOINT : GP_RECORD_RESTORE,
			     search.process, search.leader, 0);
	return 0;
}
