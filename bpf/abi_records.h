/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Records in the rings of calls, tasks, launches, copies and batches, and in that of
 * notices. */
#pragma once

enum gp_number_usize {
	GP_COMM_LEN = 16, /* as the kernel's TASK_COMM_LEN */
	/* Maximum size of an activity batch, and the offset of its number of records. */
	GP_MAX_BATCH_BYTES = 32 * 1024,
	GP_BATCH_RECORDS_AT = 72,
};

enum gp_number_u16 {
	/* gp_tensor.device: the allocator does not report it. */
	GP_ANY_DEVICE = 0xffff,
	/* gp_call.context: unknown. */
	GP_CONTEXT_UNKNOWN = 0xffff,
	/* gp_call.flags: the call was captured into a graph; nothing was allocated or
	 * freed. */
	GP_CALL_CAPTURED = 1,
};

enum gp_number_i32 {
	GP_DEVICE_UNKNOWN = -1, /* gp_call.device: not observed */
};

enum gp_number_u32 {
	/* Shift of the process id in gp_task.process; a generation number is below it. */
	GP_PROCESS_PID_SHIFT = 10,
};

/* CUgraphNodeType, the size of GP_OP_GRAPH_NODE: the last that is known, and those that concern
 * memory. */
enum gp_number_u64 {
	GP_NODE_LAST = 18, /* in CUDA 13.5 */
	GP_NODE_ALLOCATES = 10,
	GP_NODE_FREES = 11,
};

/* The first two bytes of every record. */
enum gp_record_u16 {
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
	GP_RECORD_CHECKPOINT = 20,
	GP_RECORD_RESTORE = 21,
};

/* An outermost memory call, sent at its return. Times are CLOCK_MONOTONIC nanoseconds. */
struct gp_call {
	__u16 type;
	__u16 row;    /* of the function table */
	__s32 result; /* 0 or a CUDA error code */
	__u32 tgid;   /* process and thread in the initial PID namespace */
	__u32 tid;
	__u64 start_ns;
	__u64 end_ns;
	__u64 address; /* device address that the call returned or was passed */
	__u64 size;    /* requested bytes; 0 for a free */
	__s32 device;  /* index, or GP_DEVICE_UNKNOWN */
	/* Number of the context that the call ran in or is about, 0 for a primary context;
	 * for captured calls and the end of a capture, the number of the capture. */
	__u16 context;
	__u16 flags; /* GP_CALL_* */
	__u64 stack; /* stack id within the process, or 0 */
};

/* A memory call with values that only a few functions have. */
struct gp_detail {
	struct gp_call call;
	__u64 out;              /* value that the call wrote to `out` of the function */
	__u64 stream;           /* as in gp_recipe */
	__u64 values[GP_EXTRA]; /* its `extra` arguments, or the bytes behind `out` */
};

/* A memory call with detail and a name, which follows. */
struct gp_named {
	struct gp_detail detail;
	__u32 name_bytes; /* with the terminating zero; 0 if there is none */
	__u32 reserved;
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
	__u64 allocated; /* bytes allocated on the device after the event, or the allocator */
	__u64 held;      /* bytes reserved from CUDA, or asked for */
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
 * exited, executing a new program, checkpointed or restored. */
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
	__u64 start_boot_ns;    /* start of the process, CLOCK_BOOTTIME */
	char comm[GP_COMM_LEN]; /* padded with zeroes */
};

enum gp_hits_u64 {
	/* Of the hits of a thread, each of this number is timed. A prime: the calls of a loop take
	 * turns. */
	GP_TIMED_EVERY = 61,
};

/* What hits of probes took, of a thread or of the ended threads of a process. */
struct gp_cost {
	__u64 untimed; /* hits since the last timed one */
	__u64 timed;
	__u64 timed_ns;
	__u64 tensors; /* of a live thread: hits of a framework's hook */
};

/* Key of the launch counters: a kernel or graph of a process. */
struct gp_launch_key {
	__u64 handle;
	__u32 process; /* as in gp_task */
	__u16 row;
	__u16 epoch; /* counts module unloads, after which handles may be reused */
};

/* Launch counters of one CPU. */
struct gp_launch_count {
	__u64 runs;
	__u32 captured; /* captured into a graph, not executed */
	__u32 reserved;
};

/* The name of a kernel, which follows: at its first launch, or when the program looked it
 * up. */
struct gp_kernel {
	__u16 type;
	__u16 given; /* the name was passed to the call that returned the handle */
	__u32 tgid;
	struct gp_launch_key key;
	__u32 grid[3]; /* of the first launch */
	__u32 block[3];
	__u32 name_bytes; /* with the terminating zero; 0 if there is none */
	__u32 reserved;
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
	__u64 source;   /* 0 for a memset */
	__s32 kind;     /* cudaMemcpyKind, or the memory type of the source */
	__u16 second;   /* the memory type of the destination; of a batch, the copy's number */
	__u16 captured; /* captured into a graph, not executed */
	__u64 stack;    /* as gp_call.stack */
};

/* Header of a batch of GPU activity records from a collector, whose format is in
 * crates/wire, and which follows. Bytes after `bytes` are undefined. */
struct gp_batch {
	__u16 type;
	__u16 reserved;
	__u32 tgid;
	__u32 process; /* as in gp_task */
	__u32 bytes;
	__u64 lost; /* dropped records of the process so far */
};

/* A program, and the root below which the path of its dynamic loader is looked up. User space
 * only passes it back. The number of a deleted file may be given to another, so the time of
 * the last inode change is a part of it. */
struct gp_image {
	__u64 inode;
	__u64 changed_ns;
	__u64 root_inode;
	__u32 device;
	__u32 root_device;
};

/* Asks user space to scan a process: it runs a new program, or its dynamic loader
 * mapped a possible CUDA library. */
struct gp_notice {
	__u16 type;
	__u16 held; /* the process was stopped and waits for SIGCONT */
	__u32 tgid;
	struct gp_image image; /* for GP_RECORD_NEW_IMAGE */
};
