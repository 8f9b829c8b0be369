/* What the stand-in of PyTorch's allocator has: devices, ranges of memory from CUDA, blocks in
 * these. */
#ifndef STANDIN_TORCH_BLOCKS_H
#define STANDIN_TORCH_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

struct block {
    struct block *next; /* at a higher address */
    uintptr_t address;
    size_t bytes, requested;
    /* A stream uses it: once freed, it waits for that. */
    bool is_recorded, is_pending;
    /* What PyTorch's history has of it. */
    void *context;
};

/* A segment, which is one piece, or an address range that pieces are mapped into. */
struct range {
    struct range *next;
    uint64_t stream;
    bool is_small, is_expandable;
    size_t bytes, piece_bytes;
    CUmemGenericAllocationHandle *pieces; /* 0: not mapped; 1 for a segment */
    struct block start;                   /* of no bytes, before the allocated blocks */
    struct block *packed;                 /* up to here there is no gap */
};

struct device {
    struct range *ranges;
    uint64_t allocated, reserved, requested, mallocs, frees;
};

/* Writes the state of the devices as PyTorch has it in memory, if that is wanted. */
void standin_write_blocks(const struct device *devices, size_t device_count);

#endif
