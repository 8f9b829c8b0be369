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

/* How long a program whose dynamic loader is probed needs no scan at its next starts: the
 * loader may be replaced meanwhile. */
#define GP_IMAGE_KNOWN_NS 10000000000ULL

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

#include "abi_records.h"
#include "abi_stacks.h"

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
GP_ASSERT_SIZE(struct gp_notice, 56);
GP_ASSERT_SIZE(struct gp_stack, 80 + 16 * GP_MAX_REPLACED + 8 * GP_MAX_DEPTH);
GP_ASSERT_SIZE(struct gp_path, 18 + 2 * GP_PATH_STEPS);
GP_ASSERT_SIZE(struct gp_code, 8 + 8 * GP_CODE_WORDS);
GP_ASSERT_SIZE(struct gp_batch, 24);
GP_ASSERT_SIZE(struct gp_python, 120);
GP_ASSERT_SIZE(struct gp_python_frame, 16);
GP_ASSERT_SIZE(struct gp_python_stack, 32 + 16 * GP_PYTHON_DEPTH);
GP_ASSERT_SIZE(struct gp_python_code, 64 + GP_PYTHON_NAME_BYTES + GP_PYTHON_FILE_BYTES);
GP_ASSERT_SIZE(struct gp_losses, 152);
GP_ASSERT_SIZE(struct gp_loss_key, 8);
GP_ASSERT_SIZE(struct gp_loss, 32);

#endif /* GPUPROBE_ABI_H */
