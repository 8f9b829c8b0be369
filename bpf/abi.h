/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Interface between the BPF programs and user space. This file has the vocabulary of the
 * function table, the two others the records. scripts/abi.py writes the Rust side,
 * comments included. Records have no padding: every byte that is sent has been written. */
#pragma once

enum gp_table_usize {
	/* Rows of the function table. A power of two, so that an attach cookie can be
	 * masked into range for the verifier. */
	GP_MAX_ROWS = 512,
	/* Maximum number of extra values that a recipe sends with a call. */
	GP_EXTRA = 8,
};

/* What frequent calls need of their recipe, in the attach cookie behind the row. */
enum gp_cookie_u64 {
	GP_COOKIE_SECOND = 1 << 16,        /* `address` is the second argument, not the first */
	GP_COOKIE_OUT_OF_MEMORY = 1 << 17, /* GP_OP_OUT_OF_MEMORY */
	GP_COOKIE_WITH_DEVICE = 1 << 18,   /* there is a `device` */
	/* GP_OP_TENSOR whose recipe describes address and size */
	GP_COOKIE_BLOCK = 1 << 19,
	GP_COOKIE_REQUEST = 1 << 20, /* GP_OP_BLOCK_REQUEST */
	GP_COOKIE_RESULT = 1 << 21,  /* `address` is what the function returns */
};

enum gp_error_i32 {
	/* cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY. */
	GP_OUT_OF_MEMORY = 2,
};

/* Operation of a traced function. */
enum gp_op {
	/* Never called by programs: the self-test checks with it that an attached probe
	 * fires */
	GP_OP_SELF_TEST = 1,
	GP_OP_ALLOCATE, /* Allocates `size` bytes and writes the address to `out` */
	GP_OP_FREE,     /* Frees `address` */
	/* Creates a context on `device`, writes it to `out` and makes it current */
	GP_OP_CONTEXT_CREATE,
	GP_OP_CONTEXT_RETAIN, /* Writes the primary context of `device` to `out` */
	/* Writes a context to `out` whose device and memory are those of `address` */
	GP_OP_CONTEXT_PART,
	GP_OP_CONTEXT_SET,  /* Makes the context `address` current */
	GP_OP_CONTEXT_PUSH, /* Makes the context `address` current and pushes the previous one */
	GP_OP_CONTEXT_POP,  /* Pops the current context */
	GP_OP_CONTEXT_GET,  /* Writes the current context to `out` */
	/* Writes the device of context `address` (or of the current one) to `out` */
	GP_OP_CONTEXT_DEVICE,
	GP_OP_DEVICE_SET,    /* Makes `device` current */
	GP_OP_DEVICE_GET,    /* Writes the current device to `out` */
	GP_OP_DEVICE_COUNT,  /* Writes the number of visible devices to `out` */
	GP_OP_LAUNCH,        /* Launches the kernel with the handle `address` on `stream` */
	GP_OP_GRAPH_LAUNCH,  /* Launches the executable graph `address` on `stream` */
	GP_OP_CAPTURE_BEGIN, /* Begins the capture of `stream` into a graph */
	GP_OP_CAPTURE_END,   /* Ends the capture of `stream` */
	GP_OP_KERNEL_NAME,   /* Writes the handle of the kernel named `address` to `out` */
	GP_OP_MODULE_UNLOAD, /* Unloads a module, after which handles may be reused */
	/* Copies or sets `size` bytes, times `factors`, from `out` to `address`; `device`
	 * is the kind of the copy */
	GP_OP_COPY,
	/* Makes `factors[0]` copies: `size`, `out` and `address` are arrays */
	GP_OP_COPY_BATCH,
	/* Allocates `size` bytes of physical memory and writes a handle to `out` */
	GP_OP_HANDLE_CREATE,
	/* Writes a handle of another process's or API's physical memory to `out` */
	GP_OP_HANDLE_IMPORT,
	/* Writes a new reference to the physical memory mapped at `address` to `out` */
	GP_OP_HANDLE_RETAIN,
	GP_OP_HANDLE_RELEASE, /* Drops a reference to the handle `address` */
	/* Maps `size` bytes of a handle (the first extra value) from an offset (the
	 * second) at `address` */
	GP_OP_MAP,
	/* Maps `size` bytes of the handle `address` and writes the address to `out` */
	GP_OP_MAP_HANDLE,
	GP_OP_UNMAP,   /* Unmaps `size` bytes at `address` */
	GP_OP_RESERVE, /* Reserves `size` bytes of address space and writes the address to `out` */
	GP_OP_UNRESERVE, /* Frees `size` bytes of reserved address space at `address` */
	/* Opens the memory of a 64-byte share handle (the extra values) and writes its
	 * address to `out` */
	GP_OP_SHARE_OPEN,
	GP_OP_SHARE_CLOSE,  /* Closes the shared memory at `address` */
	GP_OP_SHARE_EXPORT, /* Writes a 64-byte share handle of the memory at `address` to `out` */
	/* Writes the address of the variable named `stream` of module `address` to `out`,
	 * and its size to `size` */
	GP_OP_SYMBOL,
	GP_OP_MODULE_LOAD,     /* Loads a module and writes it to `out` */
	GP_OP_CONTEXT_DESTROY, /* Destroys the context `address` */
	GP_OP_DEVICE_RESET, /* Resets the primary context of `device`, or of the current device */
	/* Releases one reference to the primary context of `device`; the last one destroys
	 * it */
	GP_OP_PRIMARY_RELEASE,
	/* Writes a new pool on `device` to `out`; `stream` is the location, `size` the
	 * memory type */
	GP_OP_POOL_CREATE,
	GP_OP_POOL_DESTROY, /* Destroys the pool `address` once all its allocations are freed */
	/* Trims the pool `address`: unused memory is released, down to `size` bytes */
	GP_OP_POOL_TRIM,
	/* Writes the value of attribute `stream` of the pool `address` to `out` */
	GP_OP_POOL_ATTRIBUTE,
	GP_OP_POOL_LIMIT, /* Sets attribute `stream` of the pool `address` */
	/* Writes a pool of `device` to `out`; `stream` and `size` are as in
	 * GP_OP_POOL_CREATE */
	GP_OP_POOL_OF_DEVICE,
	/* Makes `address` the current pool of `device`; `stream` and `size` are as in
	 * GP_OP_POOL_CREATE */
	GP_OP_POOL_SET,
	/* Adds a node that allocates `size` bytes to the graph `address`, and writes the
	 * address to `out` */
	GP_OP_GRAPH_ALLOCATE,
	GP_OP_GRAPH_FREE, /* Adds a node that frees `stream` to the graph `address` */
	/* Adds a node of type `size` to the graph `address`; `stream` and `out` are read
	 * from its parameters */
	GP_OP_GRAPH_NODE,
	/* Instantiates the graph `address` and writes the executable graph to `out` */
	GP_OP_GRAPH_BUILD,
	GP_OP_GRAPH_DESTROY, /* Destroys the graph `address`, executable or not */
	/* Loads a library, which belongs to no context, and writes it to `out` */
	GP_OP_LIBRARY_LOAD,
	/* Writes a handle to `out` that is mapped and released like memory but holds none */
	GP_OP_HANDLE_OTHER,
	GP_OP_EVENT_RECORD, /* Records the event `address` on `stream` */
	/* Makes `stream` wait for the event `address`, by which it may join a capture */
	GP_OP_STREAM_WAIT,
	GP_OP_STREAM_DESTROY, /* Destroys `stream` */
	/* Creates an object and writes its handle to `out`; if there is a `size`, so many */
	GP_OP_OBJECT_CREATE,
	GP_OP_OBJECT_DESTROY, /* Destroys the object `address` */
	/* A framework's allocator has allocated `size` bytes at `address` (freed them if
	 * `size` is negative); `out` bytes are then allocated on `device` and `stream`
	 * bytes reserved. An allocator without a device distinguishes the two by the
	 * length of a name, `stream`, or a function frees that has no `size`; `second` is
	 * added to `address`. Entry probe only; where `address` is the result, at the
	 * instruction that returns, as C++ exceptions do not pass a return probe */
	GP_OP_TENSOR,
	/* A framework's allocator raises an out-of-memory error for `size` bytes on
	 * `device`, after its retries; `out` bytes are allocated there and `stream` bytes
	 * reserved. Entry probe only */
	GP_OP_OUT_OF_MEMORY,
	/* Moves the GPU memory of the process `address` to the host; its caller may be any */
	GP_OP_CHECKPOINT,
	GP_OP_RESTORE, /* Moves it back, to the same addresses */
	/* Asks a framework's allocator for `size` bytes; the function's return is another
	 * row. Entry probe only */
	GP_OP_BLOCK_REQUEST,
};

/* Location of a launch's grid and block. */
enum gp_launch_shape {
	GP_SHAPE_NONE,
	GP_SHAPE_ARGUMENTS, /* arguments 1 to 5 and the first stack slot */
	GP_SHAPE_CONFIG,    /* six numbers behind argument 0 */
	GP_SHAPE_DIM3,      /* two three-element structs by value, from argument 1 */
	/* Not a launch: a copy whose direction follows from its addresses, which must
	 * be resolved while the process lives. */
	GP_SHAPE_ADDRESSES,
	GP_SHAPE_CUBOIDS, /* not a launch: a batch of copies with one extent each */
};

/* Flags of a recipe, from the row's cuda::Function. */
enum gp_flag {
	GP_FLAG_SIZE_AT_RETURN = 1, /* the call writes the size to the location in `size` */
	GP_FLAG_DETAILED = 2,       /* send a gp_detail */
	GP_FLAG_NAMED = 4,          /* send a gp_named; `stream` points to the name */
	GP_FLAG_OUT_BYTES = 8,      /* send the 64 bytes at `out` as extra values */
	GP_FLAG_LEDGER_EVENT = 16,  /* send the call although it is not a memory call */
	GP_FLAG_WITH_STACK = 32,    /* take the call stack */
	GP_FLAG_IN_PROGRESS = 64,   /* GP_NCCL_IN_PROGRESS is no error */
};

/* Library that exports a function. */
enum gp_layer {
	GP_LAYER_RUNTIME, /* libcudart: has the name that the user wrote; often linked statically */
	GP_LAYER_DRIVER,  /* libcuda: all CUDA calls go through it */
	GP_LAYER_FRAMEWORK, /* of a framework with its own allocator, for example PyTorch's libc10
			     */
	GP_LAYER_LIBRARY,   /* a library with handles of its own, for example libcublas */
};

/* Place of a value at function entry. */
enum gp_argument_place {
	GP_PLACE_NONE,
	GP_PLACE_ARGUMENT,   /* integer argument `index`, 0 to 5 */
	GP_PLACE_STACK,      /* 8-byte stack slot `index` above the return address */
	GP_PLACE_RESULT = 4, /* what the function returns */
};

/* Interpretation of a place's content. */
enum gp_access {
	GP_ACCESS_PLAIN,
	GP_ACCESS_BEHIND, /* a pointer: read memory at `offset` from it */
	GP_ACCESS_PLUS,   /* a pointer: add `offset` */
	/* a pointer: read a pointer at the lower half of `offset` from it, and memory at
	 * the upper half from that */
	GP_ACCESS_TWICE,
};

#include "abi_records.h"
#include "abi_stacks.h"
