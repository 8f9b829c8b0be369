/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the BPF programs and user space agree on: the limits, the row of the
 * function table as the kernel side reads it, and the records in the rings.
 * The Rust twins are crates/model/src/abi.rs and, of what the function table is
 * made of, crates/cuda. src/probe/abi.rs asserts at compile time that both sides
 * are the same: every size, offset and number. The last constant of an enum tells
 * it how many there are. No record has padding: every byte that crosses is written.
 */
#ifndef GPUPROBE_ABI_H
#define GPUPROBE_ABI_H

/* Traced calls that can be open on one thread at once. A runtime call nests
 * two or three context calls; a call that would go deeper is counted as lost. */
#define GP_MAX_FRAMES 8
/* cuCtxPushCurrent levels remembered per thread. Deeper ones make the device
 * unknown, never wrong. */
#define GP_MAX_CONTEXTS 8
/* A nested call lies this close below the call around it. Further away is
 * another stack (a coroutine's), hence another call. */
#define GP_NEST_WINDOW (512 * 1024)
/* More driver calls than this inside one runtime call: that call was left by a
 * longjmp, and these are not inside it. They are counted as lost. */
#define GP_MAX_NESTED 32
/* Length of a comm, as in the kernel's TASK_COMM_LEN. */
#define GP_COMM_LEN 16
/* Link-map entries looked at per rendezvous of the dynamic loader; when more
 * are new, user space is told to look for itself. */
#define GP_MAX_LINKS 64
/* Bytes of a library's path that are searched for the base name. */
#define GP_PATH_LEN 256
#define GP_BASENAME_LEN 64
/* Bytes of a kernel's mangled name, with its terminating zero. Longer names
 * (deep templates) are cut. */
#define GP_NAME_LEN 4096
/* Copies of one batched call whose sizes are added up. A longer batch is
 * counted as lost. */
#define GP_MAX_BATCH 256

/* CUDA_MEMCPY3D_BATCH_OP, the same in CUDA 12.8 to 13: its bytes, and where the
 * types of its operands (CUmemcpy3DOperandType) and its extent are. */
#define GP_CUBOID_BYTES 112
#define GP_CUBOID_SOURCE_TYPE_AT 0
#define GP_CUBOID_DESTINATION_TYPE_AT 40
#define GP_CUBOID_EXTENT_AT 80
#define GP_OPERAND_POINTER 1

/* Bytes of batches of a collector for which less room is taken than for the largest. */
#define GP_MEDIUM_BATCH_BYTES (16 * 1024)
#define GP_SMALL_BATCH_BYTES (4 * 1024)
#define GP_TINY_BATCH_BYTES 1024
/* More records than a batch can have. */
#define GP_MAX_BATCH_RECORDS (GP_MAX_BATCH_BYTES / 16)

/* Bytes of a device variable's mangled name, with its terminating zero. Longer
 * names are cut. */
#define GP_SYMBOL_LEN 256

/* Bytes of a stack that are copied: all of one that is smaller, of a larger one
 * as much as the last of these. */
#define GP_TINY_STACK_BYTES (2 * 1024)
#define GP_SMALL_STACK_BYTES (4 * 1024)
#define GP_MEDIUM_STACK_BYTES (16 * 1024)
#define GP_MAX_STACK_BYTES (64 * 1024)
/* Pages of a stack that are looked at to tell two stacks apart that are not known
 * yet, the first perhaps in part. */
#define GP_LOOK_PAGES 4
#define GP_PAGE 4096
/* Copies of stacks that are sent in GP_COPY_AGAIN_NS at most. */
#define GP_MAX_COPIES 4000
/* A path that user space has not learnt after this long is copied again. */
#define GP_COPY_AGAIN_NS 1000000000ULL

/* Bytes of line tables of code objects for which less room is taken than for the
 * largest; what is longer is cut. */
#define GP_SMALL_TABLE_BYTES 512
#define GP_MEDIUM_TABLE_BYTES (4 * 1024)
#define GP_MAX_TABLE_BYTES (64 * 1024)

/* CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: the capture goes on. */
#define GP_WRONG_THREAD 908

/* A thread seen from birth that never chose a device: CUDA's default. */
#define GP_DEVICE_DEFAULT (-2)

/* Numbers that both sides use. */
enum gp_number {
	/* Rows of the function table. A power of two, so that an attach cookie can be
	 * masked into range for the verifier. */
	GP_MAX_ROWS = 512,
	/* Further values that a recipe can have sent with a call. */
	GP_MAX_EXTRA = 8,
	/* Bytes of a batch of a collector, and where it says how many records it has. */
	GP_MAX_BATCH_BYTES = 32 * 1024,
	GP_BATCH_RECORDS_AT = 72,
	/* Return addresses of a walk along the frame pointers; the kernel's own limit
	 * is 127. */
	GP_MAX_DEPTH = 128,
	/* Return addresses that return probes have replaced, on one stack. */
	GP_MAX_REPLACED = 8,
	/* Return addresses of a part of a known call path, words of the stack that they
	 * lie in, and parts of a path. */
	GP_PATH_STEPS = 59,
	GP_PATH_WORDS = 512,
	GP_PATH_LEVELS = 32,
	/* Where a process has code: a bit for each part of this size, modulo so many. */
	GP_CODE_SHIFT = 16,
	GP_CODE_WORDS = 2048,
	/* Python frames of a stack. Entries into the interpreter are frames, too: so
	 * many parts of the way are walked, and frames in each. */
	GP_PYTHON_DEPTH = 128,
	GP_PYTHON_PARTS = 16,
	GP_PYTHON_AT_ONCE = 16,
	/* gp_python.slot_behind: the slot is where `slot` is. */
	GP_PYTHON_HERE = 0x7fffffff,
	/* More than gp_python.together can be. */
	GP_PYTHON_TOGETHER = 1024,
	/* Bytes of a qualified name, from its beginning, and of a file's, from its end. */
	GP_PYTHON_NAME_BYTES = 512,
	GP_PYTHON_FILE_BYTES = 1024,
	/* Of an offset: there is no such member. */
	GP_PYTHON_NONE = 0xffff,
	/* gp_python_stack.flags: there are more frames; one could not be read. */
	GP_PYTHON_CUT = 1,
	GP_PYTHON_UNREADABLE = 2,
	/* Likewise: the thread runs no Python; they are the main thread's, which sleeps. */
	GP_PYTHON_WAITS = 4,
	/* The device of a thread that nothing has told us about. */
	GP_DEVICE_UNKNOWN = -1,
	/* The device of what an allocator hands out that does not say where. */
	GP_ANY_DEVICE = 0xffff,
	/* cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY. */
	GP_OUT_OF_MEMORY = 2,
	/* The number of a context that is not known by now. Primary contexts have 0. */
	GP_CONTEXT_UNKNOWN = 0xffff,
	/* gp_call.flags: the call went into a graph; nothing was allocated or freed. */
	GP_CALL_CAPTURED = 1,
	/* The PID of a process is in its number above so many bits. */
	GP_PROCESS_PID_SHIFT = 10,
	/* The node types of GP_OP_GRAPH_NODE that matter: CUgraphNodeType. */
	GP_NODE_MEMORY_ALLOCATE = 10,
	GP_NODE_MEMORY_FREE = 11,
	/* Users that are told apart, a power of two, and kinds of losses of one of them that
	 * are told by process. */
	GP_MAX_USERS = 1024,
	GP_USER_LOSSES = 64,
};

/* The factor of gp_mix: enums of 64 bits are not known to every kernel's BTF. */
enum gp_mix_factor {
	GP_MIX_LOW = 0x7f4a7c15,
	GP_MIX_HIGH = 0x9e3779b9,
};

/* What a traced function does. Mirrors cuda::Op. */
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
	GP_OP_DEVICE_COUNT,   /* out: devices that the process can see */
	GP_OP_LAUNCH,         /* address: the kernel's handle; stream; shape */
	GP_OP_GRAPH_LAUNCH,   /* address: the executable graph; stream */
	GP_OP_CAPTURE_BEGIN,  /* stream */
	GP_OP_CAPTURE_END,    /* stream */
	GP_OP_KERNEL_NAME,    /* address: the name; out: the kernel's handle */
	GP_OP_MODULE_UNLOAD,  /* handles may be used again for other kernels */
	GP_OP_COPY,           /* size, factors; address: destination; out: source; device: kind */
	GP_OP_COPY_BATCH,     /* as a copy, but size: array of sizes; factors[0]: its length */

	/* Memory behind handles and mappings. Like the two above, these are the
	 * ledger's, and the outermost of nested ones counts. */
	GP_OP_HANDLE_CREATE,  /* out: handle; size */
	GP_OP_HANDLE_IMPORT,  /* out: handle */
	GP_OP_HANDLE_RETAIN,  /* address; out: handle */
	GP_OP_HANDLE_RELEASE, /* address: the handle */
	GP_OP_MAP,            /* address, size; extra: handle, offset */
	GP_OP_MAP_HANDLE,     /* address: the handle; size; out: address */
	GP_OP_UNMAP,          /* address, size */
	GP_OP_RESERVE,        /* out: address; size */
	GP_OP_UNRESERVE,      /* address, size */
	GP_OP_SHARE_OPEN,     /* out: address; extra: the 64 bytes that name it */
	GP_OP_SHARE_CLOSE,    /* address */

	/* What the ledger has to know besides; sent after success, nested or not. */
	GP_OP_SHARE_EXPORT,    /* address; out: the 64 bytes that name it */
	GP_OP_SYMBOL,          /* address: the module; size; out: address; stream: the name */
	GP_OP_MODULE_LOAD,     /* out: the module */
	GP_OP_CONTEXT_DESTROY, /* address: the context */
	GP_OP_DEVICE_RESET,    /* device, or the current one */
	GP_OP_PRIMARY_RELEASE, /* device */
	GP_OP_POOL_CREATE,  /* out: pool; device; stream: type of its location; size: of its memory
			     */
	GP_OP_POOL_DESTROY, /* address: the pool */
	GP_OP_POOL_TRIM,    /* address: the pool; size: to keep */
	GP_OP_POOL_ATTRIBUTE, /* address: the pool; stream: which; out: its value */
	GP_OP_POOL_OF_DEVICE, /* out: pool; device; stream and size: as for a new one */
	GP_OP_POOL_SET,       /* address: the pool; device; stream and size: as for a new one */
	GP_OP_GRAPH_ALLOCATE, /* address: the graph; size; out: address */
	GP_OP_GRAPH_FREE,     /* address: the graph; stream: the address that is freed */
	GP_OP_GRAPH_NODE,     /* address: the graph; size: node type; stream: its parameters */
	GP_OP_GRAPH_BUILD,    /* address: the graph; out: the executable graph */
	GP_OP_GRAPH_DESTROY,  /* address: the graph, executable or not */
	GP_OP_LIBRARY_LOAD,   /* out: the library */
	GP_OP_HANDLE_OTHER,   /* out: a handle that is mapped and released, but no memory */

	/* What tells which streams are captured; seen at entry only. */
	GP_OP_EVENT_RECORD,   /* address: the event; stream */
	GP_OP_STREAM_WAIT,    /* address: the event; stream */
	GP_OP_STREAM_DESTROY, /* stream */

	/* A framework's allocator hands out, or takes back; seen at entry only. */
	/* address; size, negative: taken back; device; out: allocated; stream: held. Without
	 * device: address; size; stream: bytes of the name of what is done. */
	GP_OP_TENSOR,
	GP_OP_OUT_OF_MEMORY, /* size; device; out: allocated; stream: held; seen at entry only */
	GP_OP_COUNT,
};

/* Where a launch has its grid and block. Mirrors cuda::Shape. */
enum gp_shape {
	GP_SHAPE_NONE,
	GP_SHAPE_ARGUMENTS, /* arguments 1 to 5 and the first stack slot */
	GP_SHAPE_CONFIG,    /* six numbers behind argument 0 */
	GP_SHAPE_DIM3,      /* two structs of three by value, from argument 1 */
	/* No launch: a copy whose direction only its addresses tell, while the process lives. */
	GP_SHAPE_ADDRESSES,
	GP_SHAPE_CUBOIDS, /* no launch: a batch of copies with an extent each */
	GP_SHAPE_COUNT,
};

/* Flags of a recipe. From the row, cuda::Function. */
enum gp_flag {
	GP_SIZE_AT_RETURN = 1, /* the call writes the size to where `size` points */
	GP_DETAILED = 2,       /* send a gp_detail */
	GP_NAMED = 4,          /* send a gp_named; `stream` is where the name is */
	GP_OUT_BYTES = 8,      /* send the 64 bytes at `out` as extra values */
	GP_LEDGER_EVENT = 16,          /* send it although it is no memory call */
	GP_WITH_STACK = 32,    /* take the call stack */
	GP_FLAG_END,           /* the last one and 1 */
};

/* The library that exports a function. Mirrors cuda::Layer. */
enum gp_layer { GP_LAYER_RUNTIME, GP_LAYER_DRIVER, GP_LAYER_FRAMEWORK, GP_LAYER_COUNT };

/* Where a value is at function entry. Mirrors cuda::Place. */
enum gp_place {
	GP_PLACE_NONE,
	GP_PLACE_ARGUMENT, /* integer argument `index`, 0 to 5 */
	GP_PLACE_STACK,    /* 8-byte stack slot `index` above the return address */
	GP_PLACE_COUNT,
};

/* What to do with what is in the place. Mirrors cuda::Access. */
enum gp_access {
	GP_ACCESS_PLAIN,
	GP_ACCESS_BEHIND, /* read memory at `offset` behind it */
	GP_ACCESS_PLUS,   /* add `offset` */
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
	struct gp_value address; /* the address or context that is handed in */
	struct gp_value out;     /* where the result will be written */
	struct gp_value device;
	struct gp_value second; /* memory type of the destination, where `device` is the source's */
	struct gp_value stream; /* the stream, or what else gp_op says */
	struct gp_value factors[2]; /* `size` is multiplied by these, if there */
	struct gp_value unless[2];  /* if one is not 0, `size` is not in bytes */
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

/* A finished outermost memory call. Times are CLOCK_MONOTONIC nanoseconds. */
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
	/* Number of the context that it was made in or is about; of what was
	 * captured, and of the end of a capture, the number of the capture. */
	__u16 context;
	__u16 flags; /* GP_CALL_* */
	__u64 stack; /* names the call stack within the process, or 0 */
};

/* The same, with what only few functions have. */
struct gp_detail {
	struct gp_call call;
	__u64 out;    /* what the call wrote to `out` */
	__u64 stream; /* as in gp_recipe */
	__u64 values[GP_MAX_EXTRA];
};

/* The same, with a name. */
struct gp_named {
	struct gp_detail detail;
	__u32 name_bytes; /* with the terminating zero; 0 if there is none */
	__u32 reserved;
	char name[GP_SYMBOL_LEN];
};

/* What a framework's allocator has handed out or taken back, or by its row, what it gives
 * up on: without an address then. */
struct gp_tensor {
	__u16 type;
	__u16 row;
	__u16 device; /* as the process numbers it, or GP_ANY_DEVICE */
	__u16 reserved;
	__u32 tgid;
	__u32 tid;
	__u64 time_ns;
	__u64 address;
	__s64 bytes;     /* negative: taken back */
	__u64 allocated; /* bytes of the device, after that */
	__u64 held;      /* bytes that it has from CUDA for that */
	__u64 stack;     /* as gp_call.stack */
};

/* What was asked for, of the tensor that the thread was handed out last. */
struct gp_request {
	__u16 type;
	__u16 reserved;
	__u32 tgid;
	__u64 address;
	__u64 bytes;
	__u64 stream;
};

/* A process (its thread-group leader's comm) or a thread, at first sight and
 * when renamed; the end of either; a new program in a process. */
struct gp_task {
	__u16 type;
	__u16 from_birth; /* of a process: nothing that it did was missed */
	__u32 tgid;
	__u32 tid;
	__u32 uid;
	__u32 process;   /* tells apart processes and programs that share a PID */
	__u32 inner_pid; /* in the innermost PID namespace of the process */
	__u64 cgroup;    /* id in the hierarchy of version 2 */
	__u64 time_ns;
	__u64 start_boot_ns; /* start of the process, CLOCK_BOOTTIME */
	char comm[GP_COMM_LEN];
};

/* How often a kernel or graph was launched, per CPU. */
struct gp_launch_key {
	__u64 handle;
	__u32 process;
	__u16 row;
	__u16 epoch; /* counts the unloads of modules, after which handles are used again */
};

struct gp_launch_count {
	__u64 runs;
	__u32 captured; /* into a graph: these do not run */
	__u32 user;     /* the slot in `users` of whose entry it is, or 0 */
};

/* The name of a kernel: at its first launch, or given by the program. */
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

/* A single launch that has returned, if those are asked for. */
struct gp_launch {
	__u16 type;
	__u16 captured; /* into a graph: it did not run */
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

/* A finished copy or memory set. */
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
	__u16 captured; /* into a graph: it did not run */
};

/* What the collector inside a process has handed over: a batch of records of what
 * the GPU did, whose form user space knows (crates/wire). Nothing after
 * `bytes` of it means anything. */
struct gp_batch {
	__u16 type;
	__u16 reserved;
	__u32 tgid;
	__u32 process; /* as in gp_task */
	__u32 bytes;
	__u64 lost; /* records of the process that did not get here, so far */
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

/* Tells discovery to look at a process: it runs a program not seen before, or
 * its dynamic loader mapped something that may be a CUDA library. If held, the
 * process was stopped and waits for SIGCONT. */
struct gp_notice {
	__u16 type;
	__u16 held;
	__u32 tgid;
	__u64 inode; /* of the program, for GP_RECORD_NEW_IMAGE */
	__u64 device;
	__u32 uid; /* to whom the process counts */
	__u32 reserved;
};

/* How call stacks are taken. Mirrors probe::StackMode. */
enum gp_stack_mode {
	GP_STACKS_OFF,
	GP_STACKS_FRAME_POINTERS, /* as the kernel walks them */
	GP_STACKS_COPY,           /* a copy of every stack */
	GP_STACKS_AUTO,           /* a copy of every stack that is not known yet */
	GP_STACKS_COUNT,
};

/* A return address that a return probe has replaced. */
struct gp_replaced {
	__u64 at;
	__u64 original;
};

/* A call stack: what the frame pointers lead to, and what else user space
 * needs. Any copied bytes, from `sp` up, follow. */
struct gp_stack {
	__u16 type;
	__u16 count; /* of addresses */
	__u32 tgid;
	__u64 id;   /* gp_call.stack */
	__u64 root; /* the state that its path begins with */
	__u64 return_address;
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u32 process; /* as in gp_task */
	__u16 replaced_count;
	__u16 is_stale; /* where the process has code is not known any more */
	__u64 copied;
	__u64 copy_key; /* the key in sent_copies */
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

/* A part of a known call path: where the next return addresses are. The key is
 * the state that was reached by mixing in all those before. */
struct gp_path {
	__u64 end;   /* the state after these, if it is the path that ends here */
	__u64 stack; /* that path's stack */
	__u16 count;
	__u16 offsets[GP_PATH_STEPS]; /* from the stack pointer, in words */
};

/* Where a process has code. */
struct gp_code {
	__u64 exec_pages; /* the kernel's count of its pages of code at that time */
	__u64 bits[GP_CODE_WORDS];
};

/* How a frame says that the interpreter was entered from C to run it. */
enum gp_python_entry {
	GP_PYTHON_ENTRY_EACH,  /* each frame was */
	GP_PYTHON_ENTRY_FLAG,  /* a byte is not 0 */
	GP_PYTHON_ENTRY_OWNER, /* its caller is a frame of the C stack's */
	GP_PYTHON_ENTRY_COUNT,
};

/* From this owner on, frames are no Python's but mark where the interpreter was
 * entered: FRAME_OWNED_BY_CSTACK, FRAME_OWNED_BY_INTERPRETER. */
#define GP_PYTHON_OWNER_C 3

/* The interpreter of a process: offsets in bytes. */
struct gp_python {
	__u64 runtime;   /* _PyRuntime */
	__u64 code_type; /* PyCode_Type */
	/* In _PyRuntime: two ints, whether there is a key for the thread's state in
	 * thread-specific storage, and the key. */
	__u32 key;
	/* From the thread pointer. glibc: the first 32 entries, and the array of pointers
	 * to the others. musl: the pointer to the array of values; `tls_rest` is 0. */
	__u32 tls;
	__u32 tls_rest;
	/* In PyThreadState. */
	__u16 thread_id;
	__u16 current; /* the innermost frame, or the _PyCFrame that has it */
	__u16 cframe;  /* in that one, or GP_PYTHON_NONE */
	/* In a frame. */
	__u16 frame_bytes;
	__u16 code;
	__u16 previous;
	__u16 instruction;
	__u16 entry;    /* the flag, or the owner */
	__u16 together; /* the callers' frames are near, at lower addresses: so many bytes */
	/* In a code object: its type, and bytes from there on that are read. */
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
	__u16 text_ascii; /* the characters, if all are ASCII, and if not */
	__u16 text_wide;
	__u16 bytes_size;
	__u16 bytes_data;
	__u8 text_kind_shift; /* in the state */
	__u8 tag_mask;        /* bits of pointers in frames that are no part of these */
	__u8 is_index;        /* instruction: 4 bytes that count from the first one */
	__u8 entry_rule;      /* GP_PYTHON_ENTRY_* */
	__u16 thread_bytes;   /* of a PyThreadState, from the first of its members on */
	__u16 has_slot;       /* the kernel side's: where the states of threads are */
	__u32 slot;
	__u32 slot_behind;
	__u32 reserved;
	__u64 main_state; /* the kernel side's: PyThreadState and thread_id of the main thread */
	__u64 main_id;
	/* Counts the code objects that are gone, from a number that nothing else began with;
	 * 0 if nobody sees them go. */
	__u64 generation;
};

struct gp_python_frame {
	__u64 code;        /* gp_python_code.id */
	__s32 instruction; /* bytes from the first one, or their index; INT_MIN: far away */
	__u8 owner;        /* as the interpreter has it, if it does */
	__u8 is_entry;     /* the interpreter was entered to run it */
	__u16 reserved;
};

/* The Python frames of a call stack, innermost first. */
struct gp_python_stack {
	__u16 type;
	__u16 count;
	__u32 tgid;
	__u64 id;     /* gp_call.stack */
	__u64 native; /* the same of the stack that they are in */
	__u32 process;
	__u32 flags; /* GP_PYTHON_CUT, GP_PYTHON_UNREADABLE */
	struct gp_python_frame frames[GP_PYTHON_DEPTH];
};

/* A str. */
struct gp_python_text {
	__u32 bytes;  /* that were read */
	__u32 kind;   /* bytes of a character; 0 if it could not be read */
	__u32 is_cut; /* there are more */
};

/* A code object, before the first stack that has it. As much of its line table as
 * there is room for follows. */
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
	__u64 threads_full; /* memory calls: no room for the thread's state */
	__u64 nesting;      /* memory calls: GP_MAX_FRAMES exceeded */
	__u64 unreadable;   /* memory calls: the result could not be read */
	__u64 tasks;        /* process and thread records: the ring was full */
	__u64 notices;      /* discovery notices: the control ring was full */
	__u64 contexts;     /* context-to-device facts: the map refused */
	__u64 targets;      /* children not followed: the map was full */
	__u64 launches;     /* launches: the map was full */
	__u64 names;        /* kernel names: the ring was full */
	__u64 copies;       /* copies: the ring was full, no room, or of unknown size */
	/* Launches that were counted, but not sent one by one: the ring was full, no
	 * room, or they never returned. */
	__u64 single_launches;
	__u64 stacks;       /* call stacks: the ring or a map was full */
	__u64 stack_copies; /* copies of stacks: the ring was full; the walk was kept */
	__u64 activity;     /* records in batches: the ring was full, or unreadable */
	__u64 python;       /* Python frames of a stack: the ring or a map was full */
	__u64 python_cut;   /* stacks with more Python frames than GP_PYTHON_DEPTH */
	/* Stacks with a Python frame, and code objects, that could not be read. */
	__u64 python_unreadable;
	__u64 tensors; /* tensors: too little room in the ring, or none for the thread's state */
};

/* Losses of one kind: of a process, or of those of a user that are not told apart. */
struct gp_loss_key {
	__u32 uid;
	__u32 tgid; /* 0: of others */
	__u32 what; /* place in gp_losses */
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
