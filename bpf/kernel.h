/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Access to kernel structures. */
#pragma once

/* CLOCK_BOOTTIME at which the task, or its group leader, started. */
static __always_inline __u64 gp_start_of(struct task_struct *task, bool of_leader)
{
	return of_leader ? BPF_CORE_READ(task, group_leader, start_boottime)
			 : BPF_CORE_READ(task, start_boottime);
}

/* The PID namespaces of the task's process, which has a number in each. */
static __always_inline struct pid *gp_pid_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, group_leader, thread_pid);
}

static __always_inline __u32 gp_level_of(struct pid *pid)
{
	return BPF_CORE_READ(pid, level);
}

/* The number in the namespace of this depth. */
static __always_inline struct upid *gp_number_at(struct pid *pid, __u32 level)
{
	return (struct upid *)&pid->numbers + level;
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

/* Time of the last inode change; 0 if unknown. */
static __always_inline __u64 gp_changed_ns(struct inode *inode)
{
	__u64 seconds, nanoseconds;

	if (bpf_core_field_exists(inode->i_ctime_sec)) {
		seconds = BPF_CORE_READ(inode, i_ctime_sec);
		nanoseconds = BPF_CORE_READ(inode, i_ctime_nsec);
	} else if (bpf_core_field_exists(inode->__i_ctime)) {
		seconds = BPF_CORE_READ(inode, __i_ctime.tv_sec);
		nanoseconds = BPF_CORE_READ(inode, __i_ctime.tv_nsec);
	} else if (bpf_core_field_exists(inode->i_ctime)) {
		seconds = BPF_CORE_READ(inode, i_ctime.tv_sec);
		nanoseconds = BPF_CORE_READ(inode, i_ctime.tv_nsec);
	} else {
		return 0;
	}
	/* Since Linux 6.13 a bit above says that the time was asked for. */
	return seconds * 1000000000 + (nanoseconds & ((1 << 30) - 1));
}

/* The program that the task is about to run; false if unknown. */
static __always_inline bool gp_image_of(struct task_struct *task, struct linux_binprm *binprm,
					struct gp_image *image)
{
	struct inode *program = BPF_CORE_READ(binprm, file, f_inode);
	struct inode *root = BPF_CORE_READ(task, fs, root.dentry, d_inode);

	image->inode = BPF_CORE_READ(program, i_ino);
	image->device = BPF_CORE_READ(program, i_sb, s_dev);
	image->changed_ns = gp_changed_ns(program);
	image->root_inode = BPF_CORE_READ(root, i_ino);
	image->root_device = BPF_CORE_READ(root, i_sb, s_dev);
	return image->changed_ns;
}
