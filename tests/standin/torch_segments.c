/* Stand-in libc10_cuda: segments, the units of CUDA allocation. */
#include <stdlib.h>

#include "cudart_abi.h"
#include "torch_internal.h"

struct segment *segment_add(struct pool *pool, uint64_t stream, uintptr_t address, size_t bytes,
                            bool is_mapped)
{
    struct segment *segment = calloc(1, sizeof *segment);
    struct block *block = calloc(1, sizeof *block);
    if (!segment || !block) {
        fputs("stand-in PyTorch: no host memory for a segment\n", stderr);
        abort();
    }
    *block = (struct block){
        .segment = segment, .address = address, .bytes = bytes, .mapped = is_mapped
    };
    *segment = (struct segment){ .next = pool->device->segments,
                                 .pool = pool,
                                 .stream = stream,
                                 .address = address,
                                 .bytes = bytes,
                                 .first = block };
    pool->device->segments = segment;
    return segment;
}

void segment_remove(struct segment *segment)
{
    struct segment **link = &segment->pool->device->segments;
    while (*link != segment)
        link = &(*link)->next;
    *link = segment->next;
    free(segment->first);
    free(segment->pieces);
    free(segment);
}

static size_t segment_bytes(size_t bytes)
{
    if (bytes <= SMALL_REQUEST)
        return SMALL_SEGMENT;
    if (bytes < LARGE_REQUEST)
        return LARGE_SEGMENT;
    return (bytes + LARGE_ROUND - 1) / LARGE_ROUND * LARGE_ROUND;
}

struct block *segment_new(struct pool *pool, uint64_t stream, size_t bytes)
{
    void *address;
    if (expandable_is_on())
        return expandable_new(pool, stream, bytes);
    bytes = segment_bytes(bytes);
    if (cudaMalloc(&address, bytes))
        return NULL;
    pool->device->stats.reserved += bytes;
    return segment_add(pool, stream, (uintptr_t)address, bytes, true)->first;
}

static void release(struct segment *segment)
{
    struct pool *pool = segment->pool;
    block_set_remove(&pool->free, segment->first);
    if (cudaFree((void *)segment->address)) {
        fputs("stand-in PyTorch: cudaFree of a segment failed\n", stderr);
        abort();
    }
    pool->device->stats.reserved -= segment->bytes;
    segment_remove(segment);
}

void segments_release(struct pool *pool)
{
    struct segment *next;
    for (struct segment *segment = pool->device->segments; segment; segment = next) {
        next = segment->next;
        if (segment->pool != pool)
            continue;
        if (segment->pieces)
            expandable_release(segment);
        else if (!segment->first->allocated && !segment->first->next)
            release(segment);
    }
}
