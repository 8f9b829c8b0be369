/*
 * Stand-in libc10_cuda: the caching allocator. Each block that is given out or
 * taken back is reported under the device's lock, with the sums after it.
 */
#include "c10_abi.h"
#include "cudart_abi.h"
#include "torch_internal.h"

#define DEVICE(number)                                                            \
    [number] = { .lock = PTHREAD_MUTEX_INITIALIZER,                               \
                 .index = (number),                                               \
                 .small = { .device = &torch_devices[number], .is_small = true }, \
                 .large = { .device = &torch_devices[number] } }

struct device torch_devices[MAX_TORCH_DEVICES] = {
    DEVICE(0), DEVICE(1), DEVICE(2),  DEVICE(3),  DEVICE(4),  DEVICE(5),  DEVICE(6),  DEVICE(7),
    DEVICE(8), DEVICE(9), DEVICE(10), DEVICE(11), DEVICE(12), DEVICE(13), DEVICE(14), DEVICE(15),
};

static void report(const struct device *device, struct block *block, int64_t bytes)
{
    struct c10_device where = { C10_CUDA, (int8_t)device->index };
#ifdef C10_REPORT_MEMORY
    c10_report_memory((void *)block->address, bytes, device->stats.allocated,
                      device->stats.reserved, where);
#else
    c10_report_block(block, bytes, where);
#endif
}

static void report_out_of_memory(const struct device *device, size_t bytes)
{
#ifdef C10_REPORT_OUT_OF_MEMORY
    c10_report_out_of_memory((int64_t)bytes, device->stats.allocated, device->stats.reserved,
                             (struct c10_device){ C10_CUDA, (int8_t)device->index });
#else
    (void)device, (void)bytes;
#endif
}

/* Removes the smallest free block that is large enough from its set; NULL if there is none. A block
 * counts with the size that it could grow to. */
static struct block *take_free(struct pool *pool, uint64_t stream, size_t bytes)
{
    struct block *best = block_set_from(&pool->free, stream, bytes, 0), *next = best;
    while (next && best->segment->pieces) {
        next = block_set_from(&pool->free, stream, next->bytes, next->address + 1);
        if (next && expandable_size(next) >= expandable_size(best))
            break;
        best = next ? next : best;
    }
    if (best)
        block_set_remove(&pool->free, best);
    return best;
}

static bool is_worth_splitting(const struct block *block, size_t bytes)
{
    size_t rest = block->bytes - bytes;
    if (block->segment->pool->is_small || expandable_is_on())
        return rest >= BLOCK_ROUND;
    return rest > SMALL_REQUEST;
}

/* Cached memory is freed before the device is out of memory. */
static struct block *find_block(struct device *device, size_t bytes, uint64_t stream)
{
    struct pool *pool = bytes <= SMALL_REQUEST ? &device->small : &device->large;
    struct block *block = take_free(pool, stream, bytes);
    if (!block)
        block = segment_new(pool, stream, bytes);
    if (!block) {
        segments_release(&device->large);
        segments_release(&device->small);
        block = segment_new(pool, stream, bytes);
    }
    if (block && is_worth_splitting(block, bytes))
        block_set_add(&pool->free, block_split(block, bytes));
    return block;
}

void *torch_malloc(int device_index, size_t bytes, uint64_t stream)
{
    struct device *device = &torch_devices[device_index];
    size_t rounded = (bytes + BLOCK_ROUND - 1) / BLOCK_ROUND * BLOCK_ROUND;
    void *address = NULL;
    pthread_mutex_lock(&device->lock);
    struct block *block = find_block(device, rounded, stream);
    if (block) {
        address = (void *)block->address;
        block->allocated = true;
        block->requested = bytes;
        device->stats.allocated += block->bytes;
        device->stats.requested += bytes;
        device->stats.mallocs++;
        report(device, block, (int64_t)block->bytes);
        active_add(block);
    } else {
        device->stats.out_of_memory++;
        report_out_of_memory(device, rounded);
    }
    pthread_mutex_unlock(&device->lock);
    return address;
}

/* Only the caller can free the block once it is out of the table. */
bool torch_free(void *address)
{
    struct block *block = active_take((uintptr_t)address);
    if (!block)
        return false;
    struct pool *pool = block->segment->pool;
    struct device *device = pool->device;
    pthread_mutex_lock(&device->lock);
    struct block freed = *block;
    block->allocated = false;
    device->stats.allocated -= freed.bytes;
    device->stats.requested -= freed.requested;
    device->stats.frees++;
    block_set_add(&pool->free, block_join(&pool->free, block));
    report(device, &freed, -(int64_t)freed.bytes);
    pthread_mutex_unlock(&device->lock);
    return true;
}

void gp_torch_empty_cache(void)
{
    for (int i = 0; i < MAX_TORCH_DEVICES; i++) {
        struct device *device = &torch_devices[i];
        pthread_mutex_lock(&device->lock);
        segments_release(&device->large);
        segments_release(&device->small);
        pthread_mutex_unlock(&device->lock);
    }
}

void gp_torch_stats(int device, struct gp_torch_stats *stats)
{
    if (device < 0 || device >= MAX_TORCH_DEVICES) {
        *stats = (struct gp_torch_stats){ 0 };
        return;
    }
    pthread_mutex_lock(&torch_devices[device].lock);
    *stats = torch_devices[device].stats;
    pthread_mutex_unlock(&torch_devices[device].lock);
}
