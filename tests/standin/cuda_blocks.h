/* The device memory of the stand-in driver: addresses without memory behind them. All functions are
 * thread-safe. */
#ifndef STANDIN_CUDA_BLOCKS_H
#define STANDIN_CUDA_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Before any other call: every device gets `device_bytes` of memory. */
void blocks_setup(uint64_t device_bytes);

/* A block of `bytes` (not 0) on `device`, belonging to `owner` (not NULL).
 * Returns false when the device has not that much left. */
bool blocks_take(const void *owner, int device, uint64_t bytes, uint64_t *address);

/* Returns false when no live block begins at `address`. */
bool blocks_release(uint64_t address);

/* The same for blocks that only their owner frees: blocks_release does not know them. The owner's
 * end releases them too. */
bool blocks_take_inner(const void *owner, int device, uint64_t bytes, uint64_t *address);
bool blocks_release_inner(uint64_t address);

/* The same, with its owner and size. */
bool blocks_release_from(uint64_t address, const void **owner, uint64_t *bytes);

/* The live block that `address` lies in. Returns false if there is none. */
struct block_range {
    uint64_t address, bytes;
    const void *owner;
    int device;
};
bool blocks_find(uint64_t address, struct block_range *range);

/* Memory of a device without an address here. Returns false when the device has not that much
 * left. */
bool blocks_charge(int device, uint64_t bytes);
void blocks_uncharge(int device, uint64_t bytes);

/* The memory at the `bytes` bytes (at least 1) from `address`. */
enum block_state {
    BLOCK_NONE, /* nothing that was ever device memory */
    BLOCK_DEAD, /* device memory that is free, or not all in one live block */
    BLOCK_LIVE,
};
enum block_state blocks_state(uint64_t address, uint64_t bytes);

/* Releases all blocks of `owner`. */
void blocks_release_owned(const void *owner);

/* Bytes left on `device`. */
uint64_t blocks_left(int device);

#endif
