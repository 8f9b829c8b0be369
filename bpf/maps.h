/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Every map, global and setting of the kernel side. */
#ifndef GPUPROBE_MAPS_H
#define GPUPROBE_MAPS_H

/* Set before loading and frozen: the verifier removes what is off. */

/* The function table; the attach cookie is the index. */
const volatile struct gp_recipe recipes[GP_MAX_ROWS];
/* Trace only the processes in `targets`. */
const volatile bool only_targets;
/* Children of targets become targets. */
const volatile bool follow_children;
/* Stop targets at exec and when they map a CUDA library, so that user space
 * can attach before the first call. */
const volatile bool hold_targets;
/* Graph launches are counted, wherever they are probed. */
const volatile bool count_launches;
/* Launches are sent one by one, too, when they have returned. */
const volatile bool stream_launches;
/* Call stacks of launches are taken, too. */
const volatile bool launch_stacks;
/* The ledger is kept: send what it needs to know besides memory calls. */
const volatile bool keep_ledger;
/* GP_STACKS_* */
const volatile __u32 stack_mode;
/* What frameworks' allocators hand out is sent. */
const volatile bool take_tensors;
/* Stacks have Python frames, too. */
const volatile bool take_python;
/* Bytes waiting in the memory ring at which the reader is woken; below, it
 * looks by itself several times a second. One wake-up per event would cost
 * more than the event. */
const volatile __u64 wake_bytes = 1024 * 1024;

enum gp_ring {
	GP_RING_MEMORY,
	GP_RING_ACTIVITY,
	GP_RING_STACKS,
	GP_RING_BATCHES,
	GP_RING_CONTROL,
	/* Not a ring: what tensors have of that of memory calls, for a user and for all. */
	GP_RING_TENSORS,
	GP_MAX_RINGS = 8, /* a power of two */
};

/* Half of the bytes of each ring. */
const volatile __u64 half_of_ring[GP_MAX_RINGS];
/* Entries that one user may hold of each map: half of them. */
const volatile struct gp_most {
	__u32 threads;
	__u32 processes;
	__u32 launches;
	__u32 walks;
	__u32 python_walks;
} most;

/* Shared with user space while running. */

struct gp_losses losses;
/* Set when the reader has been woken, cleared by the reader. */
__u32 wake_pending[GP_RING_CONTROL]; /* by enum gp_ring */
/* User space is about to end: stop nothing that nobody would let go on. */
__u32 ending;
/* Copies of stacks that were sent since then. */
__u64 copies_since_ns;
__u64 copies_sent;
/* The slot of the user who wanted one last, and when that was last another than before. */
__u32 copies_user;
__u64 copies_shared_ns;
/* Bit 0: the self-test's entry was seen; bit 1: its return was. */
__u32 selftest_seen;
/* CLOCK_BOOTTIME at which every library known at the start was probed: a
 * thread that started later has been seen from its first call. */
__u64 attached_boot_ns;

/* What a user has sent to a ring since it was more than half full. */
struct gp_flow {
	__u64 until;  /* what had been written when counting began */
	__u64 last;   /* and when it was sent last */
	__u64 spent;  /* bytes since counting began */
	__u64 before; /* the same of the time before, of which some may wait to be read */
};

/* What a user holds, in entries of maps. */
struct gp_user {
	__u32 threads;
	__u32 processes;
	__u32 launches;
	__u32 launches_removed; /* by user space, which alone writes it */
	__u32 walks;
	__u32 python_walks;
	__u32 losses; /* in `user_losses` */
	__u32 reserved;
	__u64 copies_since_ns; /* as the globals of that name */
	__u64 copies_sent;
	struct gp_flow flows[GP_MAX_RINGS];
};

/* By the slots in `user_slots`; the first is of those who have no other. */
struct gp_user users[GP_MAX_USERS];

/* Never used: names the record types and the enums in BTF, so that the generated
 * skeleton has them and Rust can compare its layouts and numbers. */
struct gp_records {
	enum gp_number number;
	enum gp_mix_factor mix_factor;
	enum gp_op op;
	enum gp_shape shape;
	enum gp_flag flag;
	enum gp_layer layer;
	enum gp_place place;
	enum gp_access access;
	enum gp_record_type record_type;
	enum gp_stack_mode stack_mode;
	enum gp_python_entry python_entry;
	struct gp_call call;
	struct gp_detail detail;
	struct gp_named named;
	struct gp_tensor tensor;
	struct gp_request request;
	struct gp_task task;
	struct gp_notice notice;
	struct gp_kernel kernel;
	struct gp_copy copy;
	struct gp_launch launch;
	struct gp_launch_key launch_key;
	struct gp_launch_count launch_count;
	struct gp_stack stack;
	struct gp_path path;
	struct gp_python python;
	struct gp_python_stack python_stack;
	struct gp_python_code python_code;
	struct gp_python_code_large python_code_large;
	struct gp_batch batch;
	struct gp_batch_large batch_large;
	struct gp_loss_key loss_key;
	struct gp_loss loss;
};
const volatile struct gp_records record_layouts;

/* One function call that is open on a thread. */
struct gp_frame {
	__u64 sp; /* user stack pointer at entry: identifies the call */
	__u64 start_ns;
	__u64 address;
	__u64 stream;
	__u64 stack; /* of a launch: where it was made, or 0 */
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

/* What a framework's allocator says of a block. */
struct gp_block {
	__u64 address;
	__s64 bytes; /* negative: taken back */
	__u64 allocated;
	__u64 held;
	__u32 device;
};

struct gp_current {
	__u64 context;
	__s32 device;
	__u32 number; /* of the context: 0 for primary ones */
};

struct gp_thread {
	__u32 tgid;
	__u32 process;   /* gp_process.id */
	__u32 announced; /* the thread's record has been sent */
	__u32 depth;     /* open frames */
	__u64 memory_sp; /* sp of the open outermost memory call, or 0 */
	__u32 memory_layer;
	__u32 nested;              /* calls inside it so far */
	__u32 level;               /* index of the current context in `current` */
	__u32 overflow;            /* pushes beyond GP_MAX_CONTEXTS */
	__u64 extra[GP_MAX_EXTRA]; /* of the open outermost memory call */
	__u64 stack;               /* likewise */
	__u32 user;                /* slot in `users` */
	__u32 reserved;
	struct gp_block block; /* that was handed out or taken back last */
	struct gp_current current[GP_MAX_CONTEXTS];
	struct gp_frame frames[GP_MAX_FRAMES];
};

/* What an untouched thread looks like; also the source of zeroes. */
struct gp_thread no_threads;

#define GP_MEMORY_RING_BYTES (32 * 1024 * 1024)
/* Tensors are sent while no more than this waits: the rest is for memory calls. */
#define GP_TENSOR_BYTES (GP_MEMORY_RING_BYTES / 4 * 3)

/* Memory calls and the processes and threads that made them, in the order in
 * which they happened. Full: the call is counted in losses.ring_full. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, GP_MEMORY_RING_BYTES);
} memory_ring SEC(".maps");

/* Names of kernels, copies, and single launches. Full: losses.names,
 * losses.copies, losses.single_launches. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 * 1024 * 1024);
} activity_ring SEC(".maps");

/* What was launched how often; read at each report, emptied of ended
 * processes. Preallocated: a map that allocates as it goes refuses bursts of
 * new kernels. Full: losses.launches. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct gp_launch_key);
	__type(value, struct gp_launch_count);
} launches SEC(".maps");

enum gp_capture_what {
	GP_CAPTURE_STREAM, /* a stream that is captured */
	GP_CAPTURE_OWN,    /* likewise, the thread's own default stream, by its tid */
	GP_CAPTURE_EVENT,  /* an event that was recorded on a captured stream */
	GP_CAPTURE_OPEN,   /* the number of a capture that has not ended */
};

struct gp_capture_key {
	__u64 id;
	__u32 process;
	__u32 what; /* GP_CAPTURE_* */
};

struct gp_capture {
	__u32 number; /* of the capture, within its process */
	__u32 began;  /* it began with this stream; others joined by events */
};

/* What is being captured into graphs. Streams and events whose capture has
 * ended stay until they are pushed out. Bounded by least recent use; a
 * forgotten capture makes its launches count as run. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct gp_capture_key);
	__type(value, struct gp_capture);
} captures SEC(".maps");

/* gp_notice for discovery; wakes the reader at once. Full: losses.notices. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} control_ring SEC(".maps");

/* tid -> its open calls and current device. One entry per living thread that
 * has called a traced function; removed when the thread exits. Full: the calls
 * of further threads are counted in losses.threads_full. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct gp_thread);
} threads SEC(".maps");

struct gp_process {
	__u32 id; /* tells apart processes and programs that share a PID */
	__u32 announced;
	__u32 devices;       /* what cuDeviceGetCount said, 0 before */
	__u32 captures;      /* stream captures that are open */
	__u16 epoch;         /* gp_launch_key.epoch */
	__u16 contexts;      /* contexts created so far, which numbers them */
	__u32 captured;      /* captures begun so far, likewise */
	__u32 graph_memory;  /* some graph allocates or frees memory */
	__u32 user;          /* slot in `users` */
	__u64 activity_lost; /* records in batches that were lost here */
};

struct gp_process no_processes;

/* tgid -> a process that has called a traced function; removed at its end or
 * exec. Full: as for threads. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct gp_process);
} processes SEC(".maps");

struct gp_context_key {
	__u64 context;
	__u32 process;
	__u32 reserved;
};

struct gp_context {
	__s32 device;
	__u32 number; /* within its process; 0 for primary contexts */
};

/* CUDA context -> its device and number. Bounded by least recent use: a
 * forgotten context makes the device unknown, never wrong. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct gp_context_key);
	__type(value, struct gp_context);
} contexts SEC(".maps");

/* tgid -> CLOCK_BOOTTIME at which user space finished attaching to a library
 * that the process had already been using unseen. When it is full, user space
 * moves attached_boot_ns instead, which makes every thread older than that late. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} late_views SEC(".maps");

/* tgid -> CLOCK_BOOTTIME at which it began to run its program, of processes that
 * did so while we looked. Bounded by least recent use; a forgotten one counts as
 * as old as its process. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} programs SEC(".maps");

/* tgids that are traced, if only_targets. Full: losses.targets. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

struct gp_image_key {
	__u64 inode;
	__u64 device;
};

/* Programs whose dynamic loader is probed, entered by user space. Forgetting
 * one costs another look. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct gp_image_key);
	__type(value, __u32);
} known_images SEC(".maps");

struct gp_loader {
	__u64 tail; /* last link-map entry that was looked at */
	char path[GP_PATH_LEN];
};

/* tgid -> how far its list of loaded libraries was read. Forgetting one costs
 * another walk from the head. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct gp_loader);
} loaders SEC(".maps");

/* tgid -> when discovery was last told that it has mapped something, until that
 * is looked at; user space removes it just before. Bounded by least recent use;
 * forgetting one costs another notice. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} noticed SEC(".maps");

/* A probe, where the kernel has no attach cookies. */
struct gp_probed {
	char descriptor[8]; /* the number of our descriptor of the file, in decimal */
	__u64 offset;       /* in the file */
};

/* What would be the attach cookie of a probe; entered by user space before it
 * attaches. Full: the function cannot be probed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct gp_probed);
	__type(value, __u64);
} cookies SEC(".maps");

/* Call stacks, before the calls that have them. A large model's training step makes
 * over 400 of them, 64 KiB each, in its first 40 ms under trace. Full: losses.stacks or
 * losses.stack_copies. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 * 1024 * 1024);
} stack_ring SEC(".maps");

/* Batches of collectors inside the traced processes: not there unless asked for.
 * Full: losses.activity. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 * 1024 * 1024);
} batch_ring SEC(".maps");

/* The state that a path has reached -> how it goes on; entered by user space
 * and removed at the end of the process. Full: user space starts afresh. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct gp_path);
} paths SEC(".maps");

/* tgid -> where it has code; entered by user space and removed at its end. The
 * entry of process 0, which is always there, fits none. Preallocated, as `walks`
 * is. Full: more stacks than needed are copied. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, __u32);
	__type(value, struct gp_code);
} code_maps SEC(".maps");

struct gp_sent {
	__u64 time_ns;
	__u64 id;
};

/* What a stack looks like -> the copy of it that was sent last. Bounded by
 * least recent use; forgetting one costs another copy. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct gp_sent);
} sent_copies SEC(".maps");

/* Walks that were sent. Bounded by least recent use; forgetting one costs
 * sending it again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
} sent_walks SEC(".maps");

/* By what a stack's looks are made, and what they are by now. */
struct gp_look {
	__u64 hash;
	__u64 ip;
	__u64 program; /* where the program's own code is */
	__u64 program_bytes;
	__u64 is_stale; /* nothing says where the process has code now: 0 or 1 */
};

/* A walk along the frame pointers, and the stack itself. */
struct gp_walk {
	__u64 count;
	__u64 addresses[GP_MAX_DEPTH];
	struct gp_look look;
	__u64 stack; /* of the path that ends where it has been followed to, or 0 */
	__u64 words[GP_PATH_WORDS];
	__u32 user; /* slot in `users` */
	__u32 reserved;
};
struct gp_walk no_walks;

/* tid -> room for its walks; removed when the thread exits. Preallocated: kernels
 * before 6.1 warn of maps that allocate in probes. Full: losses.stacks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct gp_walk);
} walks SEC(".maps");

/* tgid -> its interpreter; entered by user space and removed at its end. Full:
 * its stacks have no Python frames, which user space says. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct gp_python);
} pythons SEC(".maps");

/* The largest offset of a member that is read with what it is in. */
#define GP_PYTHON_MASK 0xff
#define GP_PYTHON_CONTENT_WORDS 8

/* The Python frames of a stack, and room to read one. */
struct gp_python_walk {
	__u32 count;
	__u32 flags;
	__u64 sleeps;     /* gp_main_sleeps, when it began */
	__u64 next;       /* the frame that is walked next */
	__u64 state;      /* what its addresses mix to, so far */
	__u64 generation; /* gp_python.generation, when it began */
	__u64 from;       /* what is in the window, so many bytes */
	__u64 bytes;
	__u8 window[2 * GP_PYTHON_TOGETHER + GP_PYTHON_MASK + 9];
	__u8 code[GP_PYTHON_MASK + 9];
	__u64 content[GP_PYTHON_CONTENT_WORDS];
	__u64 codes[GP_PYTHON_DEPTH]; /* addresses of the frames' code objects */
	struct gp_python_frame frames[GP_PYTHON_DEPTH];
	__u32 user; /* slot in `users` */
	__u32 reserved;
};
struct gp_python_walk no_python_walks;

/* tid -> room for its Python frames; removed when the thread exits. Preallocated,
 * as `walks` is. Full: losses.python. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct gp_python_walk);
} python_walks SEC(".maps");

/* A stack with Python frames: while no code object has gone since, what has the same
 * addresses is the same. */
struct gp_python_known {
	__u64 id;
	__u64 generation; /* gp_python.generation */
};

/* What the addresses in a walk mix to -> the stack. Bounded by least recent use;
 * forgetting one costs looking at its code objects. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, __u64);
	__type(value, struct gp_python_known);
} known_python SEC(".maps");

/* Ids of stacks with Python frames, and of code objects, that were sent. Bounded
 * by least recent use; forgetting one costs sending it again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, __u64);
	__type(value, __u32);
} sent_python SEC(".maps");

/* The stack that is being taken. */
struct gp_taken {
	__u64 root;
	__u64 return_address;
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u64 copy_key;
	__u64 room; /* bytes to where the program's first stack began */
	__u32 tgid;
	__u32 tid;
	__u32 is_stale; /* as in gp_look */
	__u32 process;
	__u32 user; /* slot in `users` */
};

/* Slot in `users` -> the user. Entries stay. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GP_MAX_USERS);
	__type(key, __u32);
	__type(value, __u32);
} user_slots SEC(".maps");

/* What was lost by whom; entries stay. A user has GP_USER_LOSSES of them and one for each
 * kind of loss. Full: the loss is counted, but not whose it was. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct gp_loss_key);
	__type(value, struct gp_loss);
} user_losses SEC(".maps");

/* The value under `key`, made from `zero` if there is none; NULL when full. */
static __always_inline void *gp_get_or_insert(void *map, const void *key, const void *zero)
{
	void *value = bpf_map_lookup_elem(map, key);

	if (value)
		return value;
	bpf_map_update_elem(map, key, zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, key);
}

#endif /* GPUPROBE_MAPS_H */
