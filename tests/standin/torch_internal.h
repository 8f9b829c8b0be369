/* What the files of the stand-in libc10_cuda.so share; none of it is exported. */
#ifndef STANDIN_TORCH_INTERNAL_H
#define STANDIN_TORCH_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "torch_api.h"

#define MIB ((size_t)1 << 20)
#define MAX_TORCH_DEVICES 16

/* PyTorch's constants (c10/cuda/CUDACachingAllocator.cpp). */
#define BLOCK_ROUND ((size_t)512)
#define SMALL_REQUEST MIB /* the largest that goes to the small pool */
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define LARGE_REQUEST (10 * MIB) /* from here on a segment has the request's size */
#define LARGE_ROUND (2 * MIB)

/* A part of a segment: allocated, free, or (expandable) unmapped. A segment's blocks are
 * contiguous. */
struct block {
    struct block *previous, *next;
    struct segment *segment;
    uintptr_t address;
    size_t bytes, requested;
    bool allocated, mapped;
};

/* Free blocks in the order of stream, size and address: a tree of tsearch(3). */
struct block_set {
    void *root;
};

struct pool {
    struct device *device;
    bool is_small;
    struct block_set free;
};

/* Memory of one cudaMalloc, or an address range that memory is mapped into. */
struct segment {
    struct segment *next; /* of the same device */
    struct pool *pool;
    uint64_t stream;
    uintptr_t address;
    size_t bytes;
    struct block *first;
    /* Of an expandable segment: the handle of each piece, 0 where none is mapped. */
    unsigned long long *pieces;
};

/* All under `lock`. */
struct device {
    pthread_mutex_t lock;
    int index;
    struct pool small, large;
    struct segment *segments;
    struct gp_torch_stats stats;
};

extern struct device torch_devices[MAX_TORCH_DEVICES];

/* ---- torch_blocks.c ------------------------------------------------------ */

void block_set_add(struct block_set *set, struct block *block);
void block_set_remove(struct block_set *set, struct block *block);
/* The first block that is not before one of these; NULL if there is none of the same stream. */
struct block *block_set_from(const struct block_set *set, uint64_t stream, size_t bytes,
                             uintptr_t address);

/* Splits the block after `bytes`; returns the rest, which has the same properties. */
struct block *block_split(struct block *block, size_t bytes);
/* Joins a block that is in no set with its neighbours of the same kind (free and mapped, or not
 * mapped), which are removed from `set`. Returns the whole. */
struct block *block_join(struct block_set *set, struct block *block);

/* Allocated blocks of all devices, by address. Thread-safe. */
void active_add(struct block *block);
struct block *active_take(uintptr_t address);

/* ---- torch_segments.c ---------------------------------------------------- */

/* New memory for `bytes` (a block's size) in one block, which is in no set; NULL
 * if CUDA has no more. */
struct block *segment_new(struct pool *pool, uint64_t stream, size_t bytes);
/* Frees the pool's segments that have one free block only, and the free part of the expandable
 * ones. */
void segments_release(struct pool *pool);
/* A segment in the device's list, with one block over all of it. */
struct segment *segment_add(struct pool *pool, uint64_t stream, uintptr_t address, size_t bytes,
                            bool is_mapped);
/* Removes the segment, whose one block is in no set, from the list and frees both. */
void segment_remove(struct segment *segment);

/* ---- torch_expandable.c -------------------------------------------------- */

bool expandable_is_on(void);
struct block *expandable_new(struct pool *pool, uint64_t stream, size_t bytes);
/* Unmaps the wholly free pages, and frees the addresses if nothing is left. */
void expandable_release(struct segment *segment);
/* The bytes that the block could grow by. */
size_t expandable_size(const struct block *block);

/* ---- torch_allocator.c --------------------------------------------------- */

/* NULL if the device, a number below MAX_TORCH_DEVICES, has no more memory. */
void *torch_malloc(int device, size_t bytes, uint64_t stream);
/* False if `address` is no block's. */
bool torch_free(void *address);

#endif
