/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The kernel types that gpuprobe reads, written by hand. Only the members in use are
 * listed; libbpf relocates their offsets against the running kernel's BTF (CO-RE).
 * `struct pt_regs` is user-visible ABI with fixed offsets, so it is excluded from
 * relocation. */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* Values from include/uapi/linux/bpf.h. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_F_USER_STACK = 1 << 8 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0, BPF_RB_CONS_POS = 2, BPF_RB_PROD_POS = 3 };

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};
struct pt_regs {
	struct user_pt_regs user_regs;
};
#endif

struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct upid {
	int nr;
	void *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe_task {
	struct return_instance *return_instances;
};

struct mm_struct {
	unsigned long start_code, end_code;
	unsigned long start_stack;
	unsigned long exec_vm;
};

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#else
struct thread_struct {
};
#endif

struct task_struct {
	struct thread_struct thread;
	unsigned int __state;
	unsigned int on_cpu; /* unsigned, so that libbpf adapts the load to its size */
	unsigned long nvcsw, nivcsw;
	int pid;
	int tgid;
	unsigned in_execve : 1;
	__u64 self_exec_id;
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct pid *thread_pid;
	struct uprobe_task *utask;
	struct mm_struct *mm;
	struct fs_struct *fs;
	char comm[16];
};

struct super_block {
	__u32 s_dev;
};

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

/* One of its three times exists: since Linux 6.11, since 6.6, and before. */
struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
	__s64 i_ctime_sec;
	__u32 i_ctime_nsec;
	struct timespec64 __i_ctime, i_ctime;
};

struct dentry {
	struct inode *d_inode;
};

struct path {
	struct dentry *dentry;
};

struct fs_struct {
	struct path root;
};

struct file {
	struct inode *f_inode;
};

struct linux_binprm {
	struct file *file;
};

#pragma clang attribute pop

#endif /* __VMLINUX_H__ */
