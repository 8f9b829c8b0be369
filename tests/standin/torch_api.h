/*
 * The functions of the stand-in libc10_cuda.so: PyTorch's caching allocator for
 * programs in C, and in Python through ctypes.
 *
 * The device is the calling thread's (cudaSetDevice). Expandable segments are on
 * with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and nothing is cached
 * or reported where PYTORCH_NO_CUDA_MEMORY_CACHING is set, as with PyTorch.
 */
#ifndef STANDIN_TORCH_API_H
#define STANDIN_TORCH_API_H

#include <stddef.h>
#include <stdint.h>

/* Of one device, since the start. Bytes are current. */
struct gp_torch_stats {
    uint64_t allocated; /* of allocated blocks, each a multiple of 512 */
    uint64_t reserved;  /* of segments, or of mapped memory in expandable ones */
    uint64_t requested; /* of allocated blocks, as requested */
    uint64_t mallocs, frees;
    uint64_t out_of_memory; /* failed requests */
};

#pragma GCC visibility push(default)

/* As tensors are made and freed: with the USDT probes. A `stream` is any number;
 * blocks of one are not used for another. NULL for 0 bytes, or if the device has
 * no more memory. A free of what is no block returns -1, else 0. */
void *gp_torch_malloc(size_t bytes, uint64_t stream);
int gp_torch_free(void *address);

/* As libraries take memory from PyTorch (raw_alloc, raw_delete): without USDT. */
void *gp_torch_raw_malloc(size_t bytes, uint64_t stream);
int gp_torch_raw_free(void *address);

/* Frees the wholly free memory of every device. */
void gp_torch_empty_cache(void);

void gp_torch_stats(int device, struct gp_torch_stats *stats);

/* All segments and blocks as one line of JSON, to be freed by free(3): an array
 * with, for each device that was used, its number, its stats and its segments in
 * the order of addresses, with the keys of torch.cuda.memory_snapshot(). */
char *gp_torch_snapshot(void);

#pragma GCC visibility pop

#endif
