/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Interface between the BPF programs and user space: limits, the row of the function
 * table as the BPF side reads it, and the records in the rings. The Rust counterparts
 * are crates/model/src/abi.rs and, for the function table, crates/cuda.
 * src/probe/abi.rs asserts at compile time that both sides agree on every size, offset
 * and constant. The last constant of an enum is the number of its constants. Records
 * have no padding: every byte that is sent has been written. */
#ifndef GPUPROBE_ABI_H
#define GPUPROBE_ABI_H

/* Maximum number of open traced calls per thread. A runtime call nests two or three
 * context calls; deeper calls are counted as lost. */
#define GP_MAX_FRAMES 8
/* Maximum number of cuCtxPushCurrent levels per thread. Deeper ones make the device
 * unknown, never wrong. */
#define GP_MAX_CONTEXTS 8
/* Maximum distance on the stack between a nested call and its outer call. A larger
 * distance means another stack (a coroutine's), hence a separate call. */
#define GP_NEST_WINDOW (512 * 1024)
/* Maximum number of driver calls within one runtime call. More mean that the runtime
 * call was left by a longjmp and these are not inside it; they are counted as lost. */
#define GP_MAX_NESTED 32
/* Length of a comm, as in the kernel's TASK_COMM_LEN. */
#define GP_COMM_LEN 16
/* Maximum number of link-map entries read per call of _dl_debug_state; if more are new,
 * user space is told to scan the process. */
#define GP_MAX_LINKS 64
/* Maximum length of a library's path that is searched for the base name. */
#define GP_PATH_LEN 256
#define GP_BASENAME_LEN 64
/* Maximum length of a kernel's mangled name with its terminating zero. Longer names
 * (deep templates) are truncated. */
#define GP_NAME_LEN 4096
/* Maximum number of copies in a batched call whose sizes are summed. A longer batch is
 * counted as lost. */
#define GP_MAX_BATCH 256
/* Sizes that are added up in one step, which divides it. */
#define GP_BATCH_PART 16

/* CUDA_MEMCPY3D_BATCH_OP, equal in CUDA 12.8 to 13: its size, and the offsets of its
 * operand types (CUmemcpy3DOperandType) and of its extent. */
#define GP_CUBOID_BYTES 112
#define GP_CUBOID_SOURCE_TYPE_AT 0
#define GP_CUBOID_DESTINATION_TYPE_AT 40
#define GP_CUBOID_EXTENT_AT 80
#define GP_OPERAND_POINTER 1

/* Size classes of activity batches: smaller records are reserved for smaller batches. */
#define GP_MEDIUM_BATCH_BYTES (16 * 1024)
#define GP_SMALL_BATCH_BYTES (4 * 1024)
#define GP_TINY_BATCH_BYTES 1024
/* Upper limit of the number of records in a batch. */
#define GP_MAX_BATCH_RECORDS (GP_MAX_BATCH_BYTES / 16)

/* Maximum length of a device variable's mangled name with its terminating zero. Longer
 * names are truncated. */
#define GP_SYMBOL_LEN 256

/* Size classes of stack copies; of a larger stack, as much as the last of these is
 * copied. */
#define GP_TINY_STACK_BYTES (2 * 1024)
#define GP_SMALL_STACK_BYTES (4 * 1024)
#define GP_MEDIUM_STACK_BYTES (24 * 1024)
#define GP_MAX_STACK_BYTES (64 * 1024)
/* Maximum number of stack pages that are hashed to distinguish stacks without a cached
 * call path; the first page may be partial. */
#define GP_LOOK_PAGES 4
#define GP_PAGE 4096
/* Number of stack copies sent per GP_COPY_AGAIN_NS in the long run, and at once where
 * few were sent before: many programs may begin together. */
#define GP_MAX_COPIES 4000
#define GP_MAX_COPIES_AT_ONCE 12000
/* A stack whose path user space has not cached after this time is copied again. */
#define GP_COPY_AGAIN_NS 1000000000ULL

/* Size classes of line tables of code objects; longer ones are truncated. */
#define GP_SMALL_TABLE_BYTES 512
#define GP_MEDIUM_TABLE_BYTES (4 * 1024)
#define GP_MAX_TABLE_BYTES (64 * 1024)

/* CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: the capture continues. */
#define GP_WRONG_THREAD 908

/* Device of a thread that was traced from its start and never set a device: CUDA's
 * default. */
#define GP_DEVICE_DEFAULT (-2)

/* Constants used by both sides. */
enum gp_number {
	/* Rows of the function table. A power of two, so that an attach cookie can be
	 * masked into range for the verifier. */
	GP_MAX_ROWS = 512,
	/* Maximum number of extra values that a recipe sends with a call. */
	GP_MAX_EXTRA = 8,
	/* Maximum size of an activity batch, and the offset of its number of records. */
	GP_MAX_BATCH_BYTES = 32 * 1024,
	GP_BATCH_RECORDS_AT = 72,
	/* Maximum number of return addresses in a frame-pointer walk; the kernel's own
	 * limit is 127. */
	GP_MAX_DEPTH = 128,
	/* Maximum number of return addresses on one stack that are replaced by
	 * uretprobes. */
	GP_MAX_REPLACED = 8,
	/* Return addresses per part of a call path, stack words that a part spans, and
	 * maximum number of parts of a path. */
	GP_PATH_STEPS = 59,
	GP_PATH_WORDS = 512,
	GP_PATH_LEVELS = 32,
	/* Map of executable ranges: address shift per bit, and number of words; bits
	 * are modulo their number. */
	GP_CODE_SHIFT = 16,
	GP_CODE_WORDS = 2048,
	/* Maximum number of Python frames per stack. Entries into the interpreter are
	 * frames, too: the walk has this many parts, and frames in each. */
	GP_PYTHON_DEPTH = 128,
	GP_PYTHON_PARTS = 16,
	GP_PYTHON_AT_ONCE = 16,
	/* gp_python.slot_behind: the value is at `slot` itself. */
	GP_PYTHON_HERE = 0x7fffffff,
	/* Exclusive upper limit of gp_python.together. */
	GP_PYTHON_TOGETHER = 1024,
	/* Bytes of a qualified name, from its beginning, and of a file name, from its
	 * end. */
	GP_PYTHON_NAME_BYTES = 512,
	GP_PYTHON_FILE_BYTES = 1024,
	/* Offset of a member that does not exist. */
	GP_PYTHON_NONE = 0xffff,
	/* gp_python_stack.flags: there are more frames than were sent; a frame could
	 * not be read. */
	GP_PYTHON_CUT = 1,
	GP_PYTHON_UNREADABLE = 2,
	/* gp_python_stack.flags: the thread runs no Python code; the frames are those
	 * of the main thread, which is blocked. */
	GP_PYTHON_WAITS = 4,
	/* Device of a thread without an observed device. */
	GP_DEVICE_UNKNOWN = -1,
	/* Device of an allocator that does not report it. */
	GP_ANY_DEVICE = 0xffff,
	/* cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY. */
	GP_OUT_OF_MEMORY = 2,
	/* Number of an unknown context. Primary contexts have 0. */
	GP_CONTEXT_UNKNOWN = 0xffff,
	/* gp_call.flags: the call was captured into a graph; nothing was allocated or
	 * freed. */
	GP_CALL_CAPTURED = 1,
	/* Shift of the PID in gp_process.id. */
	GP_PROCESS_PID_SHIFT = 10,
	/* Node types of GP_OP_GRAPH_NODE that concern memory (CUgraphNodeType). */
	GP_NODE_MEMORY_ALLOCATE = 10,
	GP_NODE_MEMORY_FREE = 11,
	/* Number of slots for users, a power of two, and number of loss kinds per user
	 * that are counted by process. */
	GP_MAX_USERS = 1024,
	GP_USER_LOSSES = 64,
};

/* Factor of gp_mix, in two halves: 64-bit enums are not supported by every kernel's
 * BTF. */
enum gp_mix_factor {
	GP_MIX_LOW = 0x7f4a7c15,
	GP_MIX_HIGH = 0x9e3779b9,
};

/* Operation of a traced function. Mirrors cuda::Op. */
enum gp_op {
	GP_OP_NONE,
	GP_OP_SELFTEST,
	GP_OP_ALLOCATE,       /* size, out: address */
	GP_OP_FREE,           /* address */
	GP_OP_CONTEXT_CREATE, /* out: context; device. Becomes current. */
	GP_OP_CONTEXT_RETAIN, /* out: context; device */
	GP_OP_CONTEXT_SET,    /* context becomes current */
	GP_OP_CONTEXT_PUSH,   /* context */
	GP_OP_CONTEXT_POP,
	GP_OP_CONTEXT_GET,    /* out: the current context */
	GP_OP_CONTEXT_DEVICE, /* out: device of context, or of the current one */
	GP_OP_DEVICE_SET,     /* device becomes current */
	GP_OP_DEVICE_GET,     /* out: the current device */
	GP_OP_DEVICE_COUNT,   /* out: number of visible devices */
	GP_OP_LAUNCH,         /* address: the kernel's handle; stream; shape */
	GP_OP_GRAPH_LAUNCH,   /* address: the executable graph; stream */
	GP_OP_CAPTURE_BEGIN,  /* stream */
	GP_OP_CAPTURE_END,    /* stream */
	GP_OP_KERNEL_NAME,    /* address: the name; out: the kernel's handle */
	GP_OP_MODULE_UNLOAD,  /* handles may be reused for other kernels */
	GP_OP_COPY,           /* size, factors; address: destination; out: source; device: kind */
	GP_OP_COPY_BATCH,     /* as a copy, but size: array of sizes; factors[0]: its length */

	/* Memory behind handles and mappings. As for the two above, the outermost of
	 * nested calls is sent to the ledger. */
	GP_OP_HANDLE_CREATE,  /* out: handle; size */
	GP_OP_HANDLE_IMPORT,  /* out: handle */
	GP_OP_HANDLE_RETAIN,  /* address; out: handle */
	GP_OP_HANDLE_RELEASE, /* address: the handle */
	GP_OP_MAP,            /* address, size; extra: handle, offset */
	GP_OP_MAP_HANDLE,     /* address: the handle; size; out: address */
	GP_OP_UNMAP,          /* address, size */
	GP_OP_RESERVE,        /* out: address; size */
	GP_OP_UNRESERVE,      /* address, size */
	GP_OP_SHARE_OPEN,     /* out: address; extra: the 64-byte share handle */
	GP_OP_SHARE_CLOSE,    /* address */

	/* Other calls that the ledger needs; sent after success, nested or not. */
	GP_OP_SHARE_EXPORT,    /* address; out: the 64-byte share handle */
	GP_OP_SYMBOL,          /* address: the module; size; out: address; stream: the name */
	GP_OP_MODULE_LOAD,     /* out: the module */
	GP_OP_CONTEXT_DESTROY, /* address: the context */
	GP_OP_DEVICE_RESET,    /* device, or the current one */
	GP_OP_PRIMARY_RELEASE, /* device */
	GP_OP_POOL_CREATE,     /* out: pool; device; stream: location type; size: memory type */
	GP_OP_POOL_DESTROY,    /* address: the pool */
	GP_OP_POOL_TRIM,       /* address: the pool; size: to keep */
	GP_OP_POOL_ATTRIBUTE,  /* address: the pool; stream: which; out: its value */
	GP_OP_POOL_OF_DEVICE,  /* out: pool; device; stream and size: as for POOL_CREATE */
	GP_OP_POOL_SET,        /* address: the pool; device; stream and size: as for POOL_CREATE */
	GP_OP_GRAPH_ALLOCATE,  /* address: the graph; size; out: address */
	GP_OP_GRAPH_FREE,      /* address: the graph; stream: the address that is freed */
	GP_OP_GRAPH_NODE,      /* address: the graph; size: node type; stream: its parameters */
	GP_OP_GRAPH_BUILD,     /* address: the graph; out: the executable graph */
	GP_OP_GRAPH_DESTROY,   /* address: the graph, executable or not */
	GP_OP_LIBRARY_LOAD,    /* out: the library */
	GP_OP_HANDLE_OTHER,    /* out: a handle that is mapped and released, but holds no memory */

	/* Calls that affect stream capture; entry probe only. */
	GP_OP_EVENT_RECORD,   /* address: the event; stream */
	GP_OP_STREAM_WAIT,    /* address: the event; stream */
	GP_OP_STREAM_DESTROY, /* stream */

	/* An allocation or free by a framework's allocator; entry probe only. */
	/* address; size, negative for a free; device; out: allocated; stream: reserved.
	 * Without device: address; size; stream: length of the operation's name. */
	GP_OP_TENSOR,
	GP_OP_OUT_OF_MEMORY, /* size; device; out: allocated; stream: reserved; entry probe only */
	GP_OP_COUNT,
};

/* Location of a launch's grid and block. Mirrors cuda::Shape. */
enum gp_shape {
	GP_SHAPE_NONE,
	GP_SHAPE_ARGUMENTS, /* arguments 1 to 5 and the first stack slot */
	GP_SHAPE_CONFIG,    /* six numbers behind argument 0 */
	GP_SHAPE_DIM3,      /* two three-element structs by value, from argument 1 */
	/* Not a launch: a copy whose direction follows from its addresses, which must
	 * be resolved while the process lives. */
	GP_SHAPE_ADDRESSES,
	GP_SHAPE_CUBOIDS, /* not a launch: a batch of copies with one extent each */
	GP_SHAPE_COUNT,
};

/* Flags of a recipe, from the row's cuda::Function. */
enum gp_flag {
	GP_SIZE_AT_RETURN = 1, /* the call writes the size to the location in `size` */
	GP_DETAILED = 2,       /* send a gp_detail */
	GP_NAMED = 4,          /* send a gp_named; `stream` points to the name */
	GP_OUT_BYTES = 8,      /* send the 64 bytes at `out` as extra values */
	GP_LEDGER_EVENT = 16,  /* send the call although it is not a memory call */
	GP_WITH_STACK = 32,    /* take the call stack */
	GP_FLAG_END,           /* one more than the last flag */
};

/* Library that exports a function. Mirrors cuda::Layer. */
enum gp_layer { GP_LAYER_RUNTIME, GP_LAYER_DRIVER, GP_LAYER_FRAMEWORK, GP_LAYER_COUNT };

/* Place of a value at function entry. Mirrors cuda::ArgumentPlace. */
enum gp_place {
	GP_PLACE_NONE,
	GP_PLACE_ARGUMENT, /* integer argument `index`, 0 to 5 */
	GP_PLACE_STACK,    /* 8-byte stack slot `index` above the return address */
	GP_PLACE_COUNT,
};

/* Interpretation of a place's content. Mirrors cuda::Access. */
enum gp_access {
	GP_ACCESS_PLAIN,
	GP_ACCESS_BEHIND, /* a pointer: read memory at `offset` from it */
	GP_ACCESS_PLUS,   /* a pointer: add `offset` */
	GP_ACCESS_COUNT,
};

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
	__u16 flags; /* GP_* of enum gp_flag */
	struct gp_value size;
	struct gp_value address; /* address or context that is passed in */
	struct gp_value out;     /* location of the result */
	struct gp_value device;
	struct gp_value second;     /* memory type of the destination, where `device` is that of the
				     * source */
	struct gp_value stream;     /* the stream, or another value, see gp_op */
	struct gp_value factors[2]; /* factors of `size`, if present */
	struct gp_value unless[2];  /* if one of these is not 0, `size` is not in bytes */
	struct gp_value extra[GP_MAX_EXTRA];
};

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
	__u32 user;     /* slot in `users` of the entry's user, or 0 */
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

/* Asks user space to scan a process: it runs a new program, or its dynamic loader
 * mapped a possible CUDA library. If held, the process was stopped and waits for
 * SIGCONT. */
struct gp_notice {
	__u16 type;
	__u16 held;
	__u32 tgid;
	__u64 inode; /* of the program, for GP_RECORD_NEW_IMAGE */
	__u64 device;
	__u32 uid; /* user to whom the process is charged */
	__u32 reserved;
};

/* Source of call stacks. Mirrors probe::StackMode. */
enum gp_stack_mode {
	GP_STACKS_OFF,
	GP_STACKS_FRAME_POINTERS, /* the kernel's frame-pointer walk */
	GP_STACKS_COPY,           /* a copy of every stack */
	GP_STACKS_AUTO,           /* a copy of every stack without a cached call path */
	GP_STACKS_COUNT,
};

/* A return address replaced by a uretprobe. */
struct gp_replaced {
	__u64 at;
	__u64 original;
};

/* A call stack: the frame-pointer walk, and the registers for unwinding. The copied
 * bytes, from `sp` upwards, follow. */
struct gp_stack {
	__u16 type;
	__u16 count; /* number of addresses */
	__u32 tgid;
	__u64 id;   /* gp_call.stack */
	__u64 root; /* hash state at the start of the path */
	__u64 return_address;
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u32 process; /* as in gp_task */
	__u16 replaced_count;
	__u16 is_stale; /* the map of executable ranges was out of date */
	__u64 copied;
	__u64 copy_key; /* hash of the stack, the key in sent_copies */
	struct gp_replaced replaced[GP_MAX_REPLACED];
	__u64 addresses[GP_MAX_DEPTH]; /* `ip` first */
};

struct gp_stack_tiny {
	struct gp_stack stack;
	__u8 bytes[GP_TINY_STACK_BYTES];
};

struct gp_stack_small {
	struct gp_stack stack;
	__u8 bytes[GP_SMALL_STACK_BYTES + 4096];
};

struct gp_stack_medium {
	struct gp_stack stack;
	__u8 bytes[GP_MEDIUM_STACK_BYTES + 4096];
};

struct gp_stack_large {
	struct gp_stack stack;
	__u8 bytes[GP_MAX_STACK_BYTES];
};

/* A part of a cached call path: positions of the next return addresses. The key is the
 * hash state after all previous ones. */
struct gp_path {
	__u64 end;   /* the state after these, if the path ends here */
	__u64 stack; /* stack id of the path that ends here */
	__u16 count;
	__u16 offsets[GP_PATH_STEPS]; /* from the stack pointer, in words */
};

/* Map of the executable ranges of a process. */
struct gp_code {
	__u64 exec_pages; /* the kernel's count of executable pages at that time */
	__u64 bits[GP_CODE_WORDS];
};

/* How an interpreter frame marks an entry from C. */
enum gp_python_entry {
	GP_PYTHON_ENTRY_EACH,  /* every frame is an entry */
	GP_PYTHON_ENTRY_FLAG,  /* a non-zero flag in the frame */
	GP_PYTHON_ENTRY_OWNER, /* the calling frame is owned by the C stack */
	GP_PYTHON_ENTRY_COUNT,
};

/* Frames with this owner or a higher one are no Python frames but mark an entry into
 * the interpreter: FRAME_OWNED_BY_CSTACK, FRAME_OWNED_BY_INTERPRETER. */
#define GP_PYTHON_OWNER_C 3

/* The interpreter of a process: addresses, and offsets in bytes. */
struct gp_python {
	__u64 runtime;   /* _PyRuntime */
	__u64 code_type; /* PyCode_Type */
	/* In _PyRuntime: two ints, whether the key of the thread-specific storage
	 * exists, and the key. */
	__u32 key;
	/* From the thread pointer. glibc: the first 32 entries, and the array of
	 * pointers to the others. musl: the pointer to the array of values; `tls_rest`
	 * is 0. */
	__u32 tls;
	__u32 tls_rest;
	/* In PyThreadState. */
	__u16 thread_id;
	__u16 current; /* the innermost frame, or the _PyCFrame that points to it */
	__u16 cframe;  /* in _PyCFrame, or GP_PYTHON_NONE */
	/* In a frame. */
	__u16 frame_bytes;
	__u16 code;
	__u16 previous;
	__u16 instruction;
	__u16 entry;    /* the flag or the owner */
	__u16 together; /* bytes below a frame in which calling frames are read in one go */
	/* In a code object: its type, and the number of bytes from there that are read. */
	__u16 type;
	__u16 code_bytes;
	__u16 first_line;
	__u16 version; /* unique, or GP_PYTHON_NONE */
	__u16 file;
	__u16 name;
	__u16 line_table;
	__u16 instructions;
	__u16 first_traceable; /* or GP_PYTHON_NONE */
	/* In str and bytes. */
	__u16 text_length;
	__u16 text_state;
	__u16 text_ascii; /* the characters of ASCII strings, and of others */
	__u16 text_wide;
	__u16 bytes_size;
	__u16 bytes_data;
	__u8 text_kind_shift; /* shift in the state */
	__u8 tag_mask;        /* tag bits of pointers in frames, to be masked off */
	__u8 is_index;        /* the instruction is a 4-byte index from the first one */
	__u8 entry_rule;      /* GP_PYTHON_ENTRY_* */
	__u16 thread_bytes;   /* of a PyThreadState, from its first member needed */
	__u16 has_slot;       /* written by the BPF side: location of the threads' states */
	__u32 slot;
	__u32 slot_behind;
	__u32 reserved;
	__u64 main_state; /* written by the BPF side: PyThreadState and thread_id of the main thread
			   */
	__u64 main_id;
	/* Count of freed code objects, from a unique starting number; 0 if frees are
	 * not traced. */
	__u64 generation;
};

struct gp_python_frame {
	__u64 code;        /* gp_python_code.id */
	__s32 instruction; /* bytes from the first instruction, or the index; INT_MIN: out of range
			    */
	__u8 owner;        /* the interpreter's `owner` of the frame, if it has one */
	__u8 is_entry;     /* the interpreter was entered from C to run the frame */
	__u16 reserved;
};

/* The Python frames of a call stack, innermost first. */
struct gp_python_stack {
	__u16 type;
	__u16 count;
	__u32 tgid;
	__u64 id;     /* gp_call.stack */
	__u64 native; /* stack id of the native stack */
	__u32 process;
	__u32 flags; /* GP_PYTHON_CUT, GP_PYTHON_UNREADABLE */
	struct gp_python_frame frames[GP_PYTHON_DEPTH];
};

/* A string that was read. */
struct gp_python_text {
	__u32 bytes;  /* number of bytes read */
	__u32 kind;   /* bytes per character; 0 if it could not be read */
	__u32 is_cut; /* the string was truncated */
};

/* A code object, sent before the first stack that refers to it. The beginning of its
 * line table follows. */
struct gp_python_code {
	__u16 type;
	__u16 reserved;
	__u32 tgid;
	__u64 id;
	__u32 process;
	__u32 first_line;
	__s32 first_traceable; /* instruction, in units of 2 bytes */
	__u32 table_bytes;
	__u32 table_copied;
	struct gp_python_text name_text;
	struct gp_python_text file_text;
	__u32 reserved2;
	__u8 name[GP_PYTHON_NAME_BYTES];
	__u8 file[GP_PYTHON_FILE_BYTES];
};

struct gp_python_code_small {
	struct gp_python_code code;
	__u8 table[GP_SMALL_TABLE_BYTES];
};

struct gp_python_code_medium {
	struct gp_python_code code;
	__u8 table[GP_MEDIUM_TABLE_BYTES];
};

struct gp_python_code_large {
	struct gp_python_code code;
	__u8 table[GP_MAX_TABLE_BYTES];
};

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

/* Losses of one kind, by process or for the other processes of a user. */
struct gp_loss_key {
	__u32 uid;
	__u32 tgid; /* 0: other processes of the user */
	__u32 what; /* index in gp_losses */
};

struct gp_loss {
	__u64 count;
	char comm[GP_COMM_LEN];
};

#define GP_ASSERT_SIZE(type, size)                                                                 \
	_Static_assert(sizeof(type) == (size), #type " changed its layout")
GP_ASSERT_SIZE(struct gp_value, 8);
GP_ASSERT_SIZE(struct gp_recipe, 88 + 8 * GP_MAX_EXTRA);
GP_ASSERT_SIZE(struct gp_call, 64);
GP_ASSERT_SIZE(struct gp_detail, 80 + 8 * GP_MAX_EXTRA);
GP_ASSERT_SIZE(struct gp_named, sizeof(struct gp_detail) + 8 + GP_SYMBOL_LEN);
GP_ASSERT_SIZE(struct gp_tensor, 64);
GP_ASSERT_SIZE(struct gp_request, 32);
GP_ASSERT_SIZE(struct gp_task, 64);
GP_ASSERT_SIZE(struct gp_launch_key, 16);
GP_ASSERT_SIZE(struct gp_kernel, 56 + GP_NAME_LEN);
GP_ASSERT_SIZE(struct gp_launch, 88);
GP_ASSERT_SIZE(struct gp_copy, 64);
GP_ASSERT_SIZE(struct gp_notice, 32);
GP_ASSERT_SIZE(struct gp_stack, 80 + 16 * GP_MAX_REPLACED + 8 * GP_MAX_DEPTH);
GP_ASSERT_SIZE(struct gp_path, 18 + 2 * GP_PATH_STEPS);
GP_ASSERT_SIZE(struct gp_code, 8 + 8 * GP_CODE_WORDS);
GP_ASSERT_SIZE(struct gp_batch, 24);
GP_ASSERT_SIZE(struct gp_python, 120);
GP_ASSERT_SIZE(struct gp_python_frame, 16);
GP_ASSERT_SIZE(struct gp_python_stack, 32 + 16 * GP_PYTHON_DEPTH);
GP_ASSERT_SIZE(struct gp_python_code, 64 + GP_PYTHON_NAME_BYTES + GP_PYTHON_FILE_BYTES);
GP_ASSERT_SIZE(struct gp_losses, 152);
GP_ASSERT_SIZE(struct gp_loss_key, 12);
GP_ASSERT_SIZE(struct gp_loss, 24);

#endif /* GPUPROBE_ABI_H */
