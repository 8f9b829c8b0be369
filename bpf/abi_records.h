/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Records in the rings of calls, tasks, launches, copies and batches, and in that of
 * notices. */
#ifndef GPUPROBE_ABI_RECORDS_H
#define GPUPROBE_ABI_RECORDS_H

enum gp_record_type {
	GP_RECORD_CALL = 1,
	GP_RECORD_PROCESS = 2,
	GP_RECORD_THREAD = 3,
	GP_RECORD_EXIT = 4,
	GP_RECORD_EXEC = 5,
	GP_RECORD_THREAD_EXIT = 6,
	GP_RECORD_NEW_IMAGE = 7,
	GP_RECORD_NEW_LIBRARY = 8,
	GP_RECORD_KERNEL = 9,
	GP_RECORD_COPY = 10,
	GP_RECORD_DETAIL = 11,
	GP_RECORD_NAMED = 12,
	GP_RECORD_LAUNCH = 13,
	GP_RECORD_STACK = 14,
	GP_RECORD_BATCH = 15,
	GP_RECORD_PYTHON = 16,
	GP_RECORD_PYTHON_CODE = 17,
	GP_RECORD_TENSOR = 18,
	GP_RECORD_REQUEST = 19,
	GP_RECORD_COUNT,
};

/* An outermost memory call, sent at its return. Times are CLOCK_MONOTONIC nanoseconds. */
struct gp_call {
	__u16 type;
	__u16 row;
	__s32 result;
	__u32 tgid;
	__u32 tid;
	__u64 start_ns;
	__u64 end_ns;
	__u64 address;
	__u64 size;
	__s32 device; /* GP_DEVICE_UNKNOWN or an index */
	/* Number of the context that the call ran in or is about; for captured calls
	 * and the end of a capture, the number of the capture. */
	__u16 context;
	__u16 flags; /* GP_CALL_* */
	__u64 stack; /* stack id within the process, or 0 */
};

/* A memory call with values that only a few functions have. */
struct gp_detail {
	struct gp_call call;
	__u64 out;    /* value that the call wrote to `out` */
	__u64 stream; /* as in gp_recipe */
	__u64 values[GP_MAX_EXTRA];
};

/* A memory call with detail and a name. */
struct gp_named {
	struct gp_detail detail;
	__u32 name_bytes; /* with the terminating zero; 0 if there is none */
	__u32 reserved;
	char name[GP_SYMBOL_LEN];
};

/* An allocation or free by a framework's allocator, or, depending on the row, its
 * out-of-memory error, which has no address. */
struct gp_tensor {
	__u16 type;
	__u16 row;
	__u16 device; /* as numbered in the process, or GP_ANY_DEVICE */
	__u16 reserved;
	__u32 tgid;
	__u32 tid;
	__u64 time_ns;
	__u64 address;
	__s64 bytes;     /* negative for a free */
	__u64 allocated; /* bytes allocated on the device after the event */
	__u64 held;      /* bytes reserved from CUDA */
	__u64 stack;     /* as gp_call.stack */
};

/* Requested size and stream of the thread's last tensor. */
struct gp_request {
	__u16 type;
	__u16 reserved;
	__u32 tgid;
	__u64 address;
	__u64 bytes;
	__u64 stream;
};

/* A process (with its group leader's comm) or thread that is first seen, renamed,
 * exited, or executing a new program. */
struct gp_task {
	__u16 type;
	__u16 from_birth; /* of a process: it was traced from its start */
	__u32 tgid;
	__u32 tid;
	__u32 uid;
	__u32 process;   /* distinguishes processes and programs that share a PID */
	__u32 inner_pid; /* in the innermost PID namespace of the process */
	__u64 cgroup;    /* id in the cgroup v2 hierarchy */
	__u64 time_ns;
	__u64 start_boot_ns; /* start of the process, CLOCK_BOOTTIME */
	char comm[GP_COMM_LEN];
};

/* Launch counters of a kernel or graph, per CPU. */
struct gp_launch_key {
	__u64 handle;
	__u32 process;
	__u16 row;
	__u16 epoch; /* counts module unloads, after which handles may be reused */
};

struct gp_launch_count {
	__u64 runs;
	__u32 captured; /* captured into a graph, not executed */
	__u32 reserved;
};

/* The name of a kernel: at its first launch, or when the program looked it up. */
struct gp_kernel {
	__u16 type;
	__u16 given; /* the name was passed to the call that returned the handle */
	__u32 tgid;
	struct gp_launch_key key;
	__u32 grid[3];
	__u32 block[3];
	__u32 name_bytes; /* with the terminating zero; 0 if there is none */
	__u32 reserved;
	char name[GP_NAME_LEN];
};

/* A single launch, sent at its return if single launches are recorded. */
struct gp_launch {
	__u16 type;
	__u16 captured; /* captured into a graph, not executed */
	__s32 result;
	__u32 tgid;
	__u32 tid;
	struct gp_launch_key key;
	__u64 start_ns;
	__u64 end_ns;
	__u64 stream;
	__u32 grid[3]; /* of a kernel; zeroes for a graph */
	__u32 block[3];
	__u64 stack; /* as gp_call.stack */
};

/* A copy or memset, sent at its return. */
struct gp_copy {
	__u16 type;
	__u16 row;
	__s32 result;
	__u32 tgid;
	__u32 tid;
	__u64 start_ns;
	__u64 end_ns;
	__u64 bytes;
	__u64 destination;
	__u64 source;
	__s32 kind;     /* cudaMemcpyKind, or the memory type of the source */
	__u16 second;   /* the memory type of the destination */
	__u16 captured; /* captured into a graph, not executed */
};

/* Header of a batch of GPU activity records from a collector, whose format is in
 * crates/wire. Bytes after `bytes` are undefined. */
struct gp_batch {
	__u16 type;
	__u16 reserved;
	__u32 tgid;
	__u32 process; /* as in gp_task */
	__u32 bytes;
	__u64 lost; /* dropped records of the process so far */
};

struct gp_batch_tiny {
	struct gp_batch batch;
	__u8 bytes[GP_TINY_BATCH_BYTES];
};

struct gp_batch_small {
	struct gp_batch batch;
	__u8 bytes[GP_SMALL_BATCH_BYTES];
};

struct gp_batch_medium {
	struct gp_batch batch;
	__u8 bytes[GP_MEDIUM_BATCH_BYTES];
};

struct gp_batch_large {
	struct gp_batch batch;
	__u8 bytes[GP_MAX_BATCH_BYTES];
};

/* A program, and the tree in which the path of its dynamic loader is looked up. User space
 * only passes it back. The number of a deleted file may be given to another, so the times
 * of the last inode change are a part of it. */
struct gp_image {
	__u64 inode;
	__u64 changed_ns;
	__u64 root_inode;
	__u64 root_changed_ns;
	__u32 device;
	__u32 root_device;
	__u32 mount_namespace;
	__u32 reserved;
};

/* Asks user space to scan a process: it runs a new program, or its dynamic loader
 * mapped a possible CUDA library. If held, the process was stopped and waits for
 * SIGCONT. */
struct gp_notice {
	__u16 type;
	__u16 held;
	__u32 tgid;
	struct gp_image image; /* for GP_RECORD_NEW_IMAGE */
};

#endif /* GPUPROBE_ABI_RECORDS_H */
