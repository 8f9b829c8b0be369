/* Pools of stream-ordered memory, and the memory nodes of graphs, for the calls that free
 * memory. */
#ifndef STANDIN_CUDA_POOL_H
#define STANDIN_CUDA_POOL_H

#include "cuda_handles.h"
#include "cuda_internal.h"

/* Its blocks are the block table's, with the pool as their owner: they belong to
 * no context. Counts are under the pools' lock. */
struct CUmemPoolHandle_st {
    struct handle handle;
    int16_t device; /* -1: on the host */
    bool destroyed; /* and kept until its last block is freed */
    bool imported;
    uint32_t blocks;
    uint64_t used, used_high;
    uint64_t reserved, reserved_high;
    uint64_t threshold;
};

_Static_assert(sizeof(struct CUmemPoolHandle_st) <= HANDLE_BYTES, "a pool must fit its slot");

/* Whether it is a valid pool. */
bool pool_is(CUmemoryPool pool);
CUresult pool_new(CUmemoryPool *pool, int device, bool imported);
/* The current pool of the device. */
CUmemoryPool pool_current(CUdevice device);
CUresult pool_take(CUmemoryPool pool, size_t bytes, CUdeviceptr *address);

/* Common to all frees: frees a block of the block table, whoever owns it, or live memory of a
 * graph. False if there is none at `address`. */
bool memory_release(CUdeviceptr address, bool asynchronous);

#endif
