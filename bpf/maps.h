/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Maps, globals and settings of the BPF programs. */
#pragma once

#define GP_MAP(name, kind, entries, key_type, value_type)                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_##kind);                                                 \
		__uint(max_entries, entries);                                                      \
		__type(key, key_type);                                                             \
		__type(value, value_type);                                                         \
	} name SEC(".maps")

#define GP_RING(name, bytes)                                                                       \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_RINGBUF);                                                \
		__uint(max_entries, bytes);                                                        \
	} name SEC(".maps")

/* A value. `bits` is 32 or 64; the upper half of a 32-bit argument is
 * undefined and is masked off. */
struct gp_value {
	__u8 place;
	__u8 index;
	__u8 bits;
	__u8 access; /* GP_ACCESS_* */
	__u32 offset;
};

struct gp_recipe {
	__u16 op;
	__u8 shape;
	__u8 scale;  /* bytes per unit of `size` */
	__u16 layer; /* GP_LAYER_* */
	__u16 flags; /* GP_FLAG_* */
	struct gp_value size;
	struct gp_value address; /* address or context that is passed in */
	struct gp_value out;     /* location of the result */
	struct gp_value device;
	struct gp_value second;     /* memory type of the destination, where `device` is that of the
				     * source */
	struct gp_value stream;     /* the stream, or another value, see gp_op */
	struct gp_value factors[2]; /* factors of `size`, if present */
	struct gp_value unless[2];  /* if one of these is not 0, `size` is not in bytes */
	struct gp_value extra[GP_EXTRA];
};

/* Settings, written before loading and frozen: the verifier removes disabled code. */

/* The function table; the attach cookie is the index. */
const volatile struct gp_recipe recipes[GP_MAX_ROWS];
/* Trace only the processes in `targets`. */
const volatile bool only_targets;
/* Follow the children of targets. */
const volatile bool follow_children;
/* Stop targets at exec and when they map a CUDA library, so that user space can attach
 * before the first call. */
const volatile bool hold_targets;
/* Count graph launches, whether or not they are probed for other reasons. */
const volatile bool count_launches;
/* Send single launches at their return. */
const volatile bool stream_launches;
/* Take call stacks of launches. */
const volatile bool launch_stacks;
/* Send the calls other than memory calls that the ledger needs. */
const volatile bool keep_ledger;
/* Send both times of allocations and frees: their durations are needed. */
const volatile bool call_durations;
/* GP_STACKS_* */
const volatile __u32 stack_mode;
/* Send copies. */
const volatile bool take_copies;
/* Send allocations and frees of frameworks' allocators. */
const volatile bool take_tensors;
/* Add Python frames to call stacks. */
const volatile bool take_python;
/* Unread bytes in the memory ring at which the reader is woken; below, it polls several
 * times per second. A wake-up per event would cost more than the event. */
const volatile __u64 wake_bytes = 1024 * 1024;

enum gp_ring {
	GP_RING_MEMORY,
	GP_RING_ACTIVITY,
	GP_RING_STACKS,
	GP_RING_BATCHES,
	GP_RING_CONTROL,
	/* Not a ring: the share of tensors in the memory ring. */
	GP_RING_TENSORS,
	GP_MAX_RINGS = 8, /* a power of two */
};

/* Half of the size of each ring, bytes. */
const volatile __u64 half_of_ring[GP_MAX_RINGS];
/* Shared with user space at run time. */

/* Events that did not reach user space, by cause. */
struct gp_losses {
	__u64 ring_full;    /* memory calls: the ring was full */
	__u64 threads_full; /* memory calls: the map of threads was full */
	__u64 nesting;      /* memory calls: GP_MAX_FRAMES exceeded */
	__u64 unreadable;   /* memory calls: the result could not be read */
	__u64 tasks;        /* process and thread records: the ring was full */
	__u64 notices;      /* discovery notices: the control ring was full */
	__u64 contexts;     /* context-to-device assignments: the map was full */
	__u64 targets;      /* children not followed: the map was full */
	__u64 launches;     /* launches: the map was full */
	__u64 names;        /* kernel names: the ring was full */
	__u64 copies;       /* copies: the ring or the map of threads was full, or the size was
			     * unknown */
	/* Launches that were counted but not sent one by one: the ring or the map of
	 * threads was full, or they never returned. */
	__u64 single_launches;
	__u64 stacks;       /* call stacks: the ring or a map was full */
	__u64 stack_copies; /* copies of stacks: the ring was full; the walk was sent */
	__u64 activity;     /* activity records in batches: the ring was full, or the batch was
			     * unreadable */
	__u64 python;       /* Python frames of a stack: the ring or a map was full */
	__u64 python_cut;   /* stacks with more Python frames than GP_PYTHON_DEPTH */
	/* Stacks with a Python frame, and code objects, that could not be read. */
	__u64 python_unreadable;
	__u64 tensors; /* tensors: the ring was nearly full, or the map of threads was full */
};
struct gp_losses losses;
/* Set when the reader has been woken, cleared by the reader. */
__u32 wake_pending[GP_RING_CONTROL]; /* by enum gp_ring */
/* Number of open stream captures of all processes: without any, which is the rule, no
 * process is looked up for its own. */
__u32 open_captures;
/* Number of processes that have unloaded modules, likewise. */
__u32 unloaders;
/* User space is shutting down: stop no process, since nothing would resume it. */
__u32 ending;
/* Number of stack copies sent, less those that copies_since_ns has paid for. */
__u64 copies_since_ns;
__u64 copies_sent;
/* Bit 0: the self-test's entry was seen; bit 1: its return. */
__u32 selftest_seen;
/* CLOCK_BOOTTIME at which all libraries found at startup were probed: a thread that
 * started later is traced from its first call. */
__u64 attached_boot_ns;

/* An open call of a thread. */
struct gp_frame {
	__u64 sp; /* user stack pointer at entry: identifies the call */
	__u64 start_ns;
	__u64 address;
	__u64 stream;
	__u64 stack; /* of a call that is no memory call: stack id, or 0 */
	union {
		struct {
			__u64 size;
			__u64 out;
			__u64 factor; /* of a size that is read at return */
		};
		__u32 shape[6]; /* of a launch: its grid and block */
	};
	__s32 device;
	__u16 row;
	__u16 op;
	__u16 second;
	__u16 epoch;    /* of a launch: gp_launch_key.epoch */
	__u16 captured; /* of a launch: it goes into a graph */
	__u16 reserved;
};

struct gp_current {
	__u64 context;
	__s32 device;
	__u32 number; /* of the context: 0 for primary ones */
};

/* The Python frames of a stack, and what the last one of a thread says about the next. */
struct gp_last {
	__u32 count;
	__u32 flags;
	__u64 sleeps; /* gp_main_sleeps at the start of the walk, or 0 for own frames */
	__u64 first;  /* the innermost frame */
	__u64 state;  /* hash of the frames */
	__u64 lowest; /* the outermost frame */
};

/* The first two are also read by user space. */
struct gp_thread {
	struct gp_cost cost;
	__u32 process; /* gp_process.id */
	__u32 tgid;
	__u32 announced; /* the thread's record has been sent */
	__u32 depth;     /* number of open frames */
	__u64 unread;    /* bytes in the memory ring when this thread last asked */
	__u64 sent;      /* bytes that it has sent since */
	__u64 block;     /* address of the last block of a framework's allocator */
	__u64 asked;     /* bytes of the open GP_OP_BLOCK_REQUEST */
	__u64 asked_sp;  /* its sp, or 0 */
	struct gp_last last;
	__u32 reach;     /* how many words from its begin the path of the last stack took */
	__u64 memory_sp; /* sp of the open outermost memory call, or 0 */
	__u32 memory_layer;
	__u32 nested;          /* number of calls inside it so far */
	__u32 level;           /* index of the current context in `current` */
	__u32 overflow;        /* pushes beyond GP_MAX_CONTEXTS */
	__u64 extra[GP_EXTRA]; /* of the open outermost memory call */
	__u64 stack;           /* its stack id */
	struct gp_current current[GP_MAX_CONTEXTS];
	struct gp_frame frames[GP_MAX_FRAMES];
};

/* Initial value of a thread. */
struct gp_thread no_threads;

#define GP_MEMORY_RING_BYTES (32 * 1024 * 1024)
/* Tensors are sent while no more than this is unread: the rest is reserved for memory
 * calls. */
#define GP_TENSOR_BYTES (GP_MEMORY_RING_BYTES / 4 * 3)

/* Memory calls with their processes and threads, in the order in which they happened.
 * Full: the call is counted in losses.ring_full. */
GP_RING(memory_ring, GP_MEMORY_RING_BYTES);

/* Kernel names, copies and single launches. Full: losses.names, losses.copies,
 * losses.single_launches. */
GP_RING(activity_ring, 8 * 1024 * 1024);

/* Launch counters; read at each report, which removes those of exited processes.
 * Preallocated: a map that allocates on demand fails on bursts of new kernels. Full:
 * losses.launches. */
GP_MAP(launches, PERCPU_HASH, 32768, struct gp_launch_key, struct gp_launch_count);

enum gp_capture_what {
	GP_CAPTURE_STREAM, /* a stream that is captured */
	GP_CAPTURE_OWN,    /* the thread's own default stream, by its tid */
	GP_CAPTURE_EVENT,  /* an event that was recorded on a captured stream */
	GP_CAPTURE_OPEN,   /* an open capture, by its number */
};

struct gp_capture_key {
	__u64 id;
	__u32 process;
	__u32 what; /* GP_CAPTURE_* */
};

struct gp_capture {
	__u32 number; /* of the capture, within its process */
	__u32 began;  /* the capture began with this stream; others joined by events */
};

/* Streams that are being captured, and their events. Entries of ended captures remain
 * until evicted. LRU; an evicted capture makes its launches count as executed. */
GP_MAP(captures, LRU_HASH, 8192, struct gp_capture_key, struct gp_capture);

/* gp_notice records; wakes the reader at once. Full: losses.notices. */
GP_RING(control_ring, 512 * 1024);

/* tid -> open calls and current device. One entry per live thread that has called a
 * traced function; removed at thread exit. Full: the calls of further threads are
 * counted in losses.threads_full. */
GP_MAP(threads, HASH, 16384, __u32, struct gp_thread);

/* The first two are also read by user space. */
struct gp_process {
	struct gp_cost cost; /* of its ended threads */
	__u32 id;            /* distinguishes processes and programs that share a PID */
	__u16 announced;
	__u16 graph_memory;  /* a graph of the process allocates or frees memory */
	__u32 devices;       /* result of cuDeviceGetCount, 0 before */
	__u32 captures;      /* number of open stream captures */
	__u16 epoch;         /* gp_launch_key.epoch */
	__u16 contexts;      /* number of contexts created so far, which numbers them */
	__u32 captured;      /* number of captures begun so far, which numbers them */
	__u64 activity_lost; /* lost activity records */
	__u64 leader;        /* its task_struct, in which gp_pid_of reads */
};

struct gp_process no_processes;

/* tgid -> process that has called a traced function; removed at exit or exec. Full: as
 * for threads. */
GP_MAP(processes, HASH, 16384, __u32, struct gp_process);

/* gp_process.id -> cost of an ended process. LRU; an evicted entry counts as none. */
GP_MAP(ended_costs, LRU_HASH, 1024, __u32, struct gp_cost);

struct gp_context_key {
	__u64 context;
	__u32 process;
	__u32 reserved;
};

struct gp_context {
	__s32 device;
	__u32 number; /* within its process; 0 for primary contexts */
};

/* CUDA context -> device and number. LRU; an evicted context makes the device unknown,
 * never wrong. */
GP_MAP(contexts, LRU_HASH, 16384, struct gp_context_key, struct gp_context);

/* tgid -> CLOCK_BOOTTIME at which user space finished attaching to a library that the
 * process had been using before. When full, user space moves attached_boot_ns instead,
 * which makes every thread older than that late. */
GP_MAP(late_views, HASH, 4096, __u32, __u64);

/* tgid -> CLOCK_BOOTTIME of the exec, for processes that executed their program during
 * tracing. LRU; an evicted entry counts as the start of the process. */
GP_MAP(programs, LRU_HASH, 16384, __u32, __u64);

/* Traced tgids, if only_targets. Full: losses.targets. */
GP_MAP(targets, HASH, 32768, __u32, __u32);

#include "loader_maps.h"
#include "stack_maps.h"

struct gp_flow_key {
	__u32 tgid;
	__u32 ring; /* enum gp_ring */
};

/* Use of a ring by a process since it was more than half full. */
struct gp_flow {
	__u64 until;  /* write position of the ring when counting began */
	__u64 last;   /* write position at the process's last record */
	__u64 spent;  /* bytes since counting began */
	__u64 before; /* bytes of the previous period, part of which may be unread */
};

/* Processes that have sent records to a ring that was more than half full. LRU; an evicted
 * process begins a new share. */
GP_MAP(flows, LRU_HASH, 8192, struct gp_flow_key, struct gp_flow);

/* Losses by process and kind; entries are permanent. Full: the loss is counted only in
 * total. */
GP_MAP(process_losses, HASH, 8192, struct gp_loss_key, struct gp_loss);

/* The value under `key`, created from `zero` if there is none; NULL if the map is full. */
static __always_inline void *gp_get_or_insert(void *map, const void *key, const void *zero)
{
	void *value = bpf_map_lookup_elem(map, key);

	if (value)
		return value;
	bpf_map_update_elem(map, key, zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, key);
}
