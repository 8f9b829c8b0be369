/* Allocators of XLA and TensorFlow as they are in memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bfc_sums {
    uint64_t in_use, peak, reserved;
};

/* Gives memory to the allocator of the GPU. */
void bfc_add_region(uintptr_t start, size_t bytes);

/* Notes that a chunk is allocated or freed; outside of all regions, it is one of the host. Returns
 * the allocator's object, or NULL if STANDIN_BFC is not set: to a number from which the places of
 * a chunk's fields are drawn. */
void *bfc_note(bool is_allocation, uintptr_t address, size_t bytes);

/* What the GPU's allocator says of itself. */
struct bfc_sums bfc_sums(void);
