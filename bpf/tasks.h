/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Fork, rename, exec and exit of processes, by raw tracepoints, which need no tracefs. */
#pragma once

/* Counts the open launches of an exiting thread as lost. */
static __always_inline void gp_count_open_launches(struct gp_thread *thread)
{
	__u32 left = 0;

	if (!stream_launches)
		return;
	for (__u32 i = 0; i < GP_MAX_FRAMES && i < thread->depth; i++)
		left += gp_is_single(gp_frame_at(thread, i)->op);
	if (left)
		gp_count_many(single_launches, left);
}

/* Removes an exited or replaced process; sends a record if it was announced. */
static __always_inline void gp_end_process(__u16 type, struct task_struct *task, __u32 tgid)
{
	struct gp_process *process = gp_find_process(tgid);
	__u32 id;

	if (process) {
		gp_send_task(type, process->id, (__u64)task, 0);
		__sync_fetch_and_add(&open_captures, -process->captures);
		__sync_fetch_and_add(&unloaders, -!!process->epoch);
		id = process->id;
		bpf_map_update_elem(&ended_costs, &id, &process->cost, BPF_ANY);
		bpf_map_delete_elem(&processes, &tgid);
	}
	bpf_map_delete_elem(&loaders, &tgid);
	bpf_map_delete_elem(&noticed, &tgid);
	bpf_map_delete_elem(&late_views, &tgid);
	bpf_map_delete_elem(&programs, &tgid);
	if (stack_mode == GP_STACKS_AUTO)
		bpf_map_delete_elem(&code_maps, &tgid);
	if (take_python)
		bpf_map_delete_elem(&pythons, &tgid);
}

static __always_inline void gp_on_exit(struct task_struct *task)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gp_thread *thread;

	thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread) {
		gp_count_open_launches(thread);
		if (thread->announced)
			gp_send_task(GP_RECORD_THREAD_EXIT, thread->process, (__u64)task, 0);
		gp_end_thread(thread, tid);
	}
	if (gp_outlives(task))
		return;
	gp_end_process(GP_RECORD_EXIT, task, tgid);
	if (only_targets)
		bpf_map_delete_elem(&targets, &tgid);
}

static __always_inline void gp_on_exec(struct task_struct *task, __u32 old_tid,
				       struct linux_binprm *binprm)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gp_image image = {};
	struct gp_thread *thread = bpf_map_lookup_elem(&threads, &old_tid);
	__u64 now, *known;

	if (thread)
		gp_end_thread(thread, old_tid);
	bpf_map_delete_elem(&threads, &tid);
	gp_end_process(GP_RECORD_EXEC, task, tgid);
	if (!gp_is_target(tgid))
		return;
	now = bpf_ktime_get_boot_ns();
	bpf_map_update_elem(&programs, &tgid, &now, BPF_ANY);
	if (gp_image_of(task, binprm, &image)) {
		known = bpf_map_lookup_elem(&known_images, &image);
		if (known && now - *known < GP_IMAGE_KNOWN_NS)
			return;
	}
	gp_send_notice(GP_RECORD_NEW_IMAGE, tgid, &image);
}

static __always_inline void gp_on_fork(struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_tgid, tgid, one = 1;

	if (!follow_children)
		return;
	parent_tgid = BPF_CORE_READ(parent, tgid);
	tgid = BPF_CORE_READ(child, tgid);
	if (parent_tgid == tgid)
		return;
	if (bpf_map_lookup_elem(&targets, &parent_tgid) &&
	    bpf_map_update_elem(&targets, &tgid, &one, BPF_ANY))
		gp_count(targets);
}

static __always_inline void gp_on_rename(struct task_struct *task, const char *name)
{
	__u32 tid = BPF_CORE_READ(task, pid);
	struct gp_thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (!thread || !thread->announced)
		return;
	/* At exec the name is that of the new program, but the process still counts as
	 * the old one. */
	if (bpf_core_field_exists(task->in_execve) &&
	    BPF_CORE_READ_BITFIELD_PROBED(task, in_execve))
		return;
	gp_send_task(GP_RECORD_THREAD, thread->process, (__u64)task, (__u64)name);
	if (tid == thread->tgid)
		gp_send_task(GP_RECORD_PROCESS, thread->process, (__u64)task, (__u64)name);
}
