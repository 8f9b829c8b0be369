/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Limits of the BPF programs, which user space does not know. */
#pragma once

/* Maximum number of open traced calls per thread. A runtime call nests two or three
 * context calls; deeper calls are counted as lost. */
#define GP_MAX_FRAMES 8
/* A thread asks how full the memory ring is when it has sent as many bytes. */
#define GP_ASK_BYTES 4096
/* Maximum number of cuCtxPushCurrent levels per thread. Deeper ones make the device
 * unknown, never wrong. */
#define GP_MAX_CONTEXTS 8
/* Maximum distance on the stack between a nested call and its outer call. A larger
 * distance means another stack (a coroutine's), hence a separate call. */
#define GP_NEST_WINDOW (512 * 1024)
/* Maximum number of driver calls within one runtime call. More mean that the runtime
 * call was left by a longjmp and these are not inside it; they are counted as lost. */
#define GP_MAX_NESTED 32
/* Maximum number of link-map entries read per call of _dl_debug_state; if more are new,
 * user space is told to scan the process. */
#define GP_MAX_LINKS 64
/* Maximum length of a library's path that is searched for the base name. */
#define GP_PATH_LEN 256
#define GP_BASENAME_LEN 64
/* Maximum length of a kernel's mangled name with its terminating zero. Longer names
 * (deep templates) are truncated. */
#define GP_NAME_LEN 4096
/* Maximum number of copies in a batched call that are sent. Further ones are counted as
 * lost. */
#define GP_MAX_BATCH 256

/* CUDA_MEMCPY3D_BATCH_OP, equal in CUDA 12.8 to 13.5: its size, and the offsets of its
 * operands (a CUmemcpy3DOperandType, then the address) and of its extent. */
#define GP_CUBOID_BYTES 112
#define GP_CUBOID_SOURCE_AT 0
#define GP_CUBOID_DESTINATION_AT 40
#define GP_CUBOID_EXTENT_AT 80
#define GP_OPERAND_POINTER 1
#define GP_OPERAND_ADDRESS_AT 8

/* Upper limit of the number of records in a batch. */
#define GP_MAX_BATCH_RECORDS (GP_MAX_BATCH_BYTES / 16)

/* Maximum length of a device variable's mangled name with its terminating zero. Longer
 * names are truncated. */
#define GP_SYMBOL_LEN 256

/* Size classes of stack copies; of a larger stack, as much as the last of these is
 * copied. */
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

/* A walk of Python frames has this many parts, and frames in each. */
#define GP_PYTHON_PARTS 32
#define GP_PYTHON_AT_ONCE 8

/* Frames that are no farther apart are in the same chunk of memory: no chunk is smaller. */
#define GP_PYTHON_CHUNK (16 * 1024)

/* Size classes of line tables of code objects; longer ones are truncated. */
#define GP_SMALL_TABLE_BYTES (2 * 1024)
#define GP_MAX_TABLE_BYTES (64 * 1024)

/* ncclInProgress: a communicator that does not block has been made, or is being destroyed. */
#define GP_NCCL_IN_PROGRESS 7
/* Maximum number of objects that a call makes. */
#define GP_MAX_OBJECTS 256

#define GP_SIGSTOP 19

/* CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: the capture continues. */
#define GP_WRONG_THREAD 908

/* Device of a thread that was traced from its start and never set a device: CUDA's
 * default. */
#define GP_DEVICE_DEFAULT (-2)
