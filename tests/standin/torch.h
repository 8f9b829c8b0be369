/* PyTorch's allocator, as far as a tracer sees it: the stand-ins libc10.so and libc10_cuda.so. */
#ifndef STANDIN_TORCH_H
#define STANDIN_TORCH_H

#include <stddef.h>
#include <stdint.h>

enum { C10_CUDA = 1 };

struct c10_device {
    int8_t type, index;
};

#pragma GCC visibility push(default)

/* ---- libc10.so: calls of the hooks, whose names depend on PyTorch's version. */

/* `bytes` is negative for a free; the totals are those after the call. */
void standin_report_memory(void *address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                           struct c10_device device);
void standin_report_out_of_memory(int64_t requested, uint64_t allocated, uint64_t reserved,
                                  struct c10_device device);

/* ---- libc10_cuda.so: the allocator. */

/* A block on the calling thread's device (cudaSetDevice). `stream` is any number; blocks of one
 * are not used for another. NULL if the device has no more memory. */
void *gp_torch_malloc(size_t bytes, uint64_t stream);
/* The same as a library takes it (raw_alloc): without the USDT probe. */
void *gp_torch_raw_malloc(size_t bytes, uint64_t stream);
/* -1 if `address` is no block's, else 0. */
int gp_torch_free(void *address);
/* What the history has of the blocks from now on. */
extern void *gp_torch_context;
/* Returns the free memory of every device to CUDA. */
void gp_torch_empty_cache(void);
/* A stream uses this block: once freed, it is nobody's until gp_torch_synchronize. */
void gp_torch_record_stream(void *address);
void gp_torch_synchronize(void);
/* The exact state, to be freed by free(3), in words with a semicolon after each group:
 * `device NUMBER ALLOCATED RESERVED REQUESTED MALLOCS FREES` for each device that was used, then
 * `piece ADDRESS BYTES STREAM SMALL EXPANDABLE` for its memory from CUDA and
 * `block ADDRESS BYTES REQUESTED` for each block, `pending` for one that waits for a stream. */
char *gp_torch_snapshot(void);

#pragma GCC visibility pop

#endif
