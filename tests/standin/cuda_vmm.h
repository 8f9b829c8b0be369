/* Physical memory, shared by creation and mapping. */
#ifndef STANDIN_CUDA_VMM_H
#define STANDIN_CUDA_VMM_H

#include <pthread.h>

#include "cuda_handles.h"
#include "cuda_internal.h"

#define GRANULARITY (2ull << 20)

/* It exists while it has references or mappings; the handle is valid while it has references. All
 * under `vmm_lock`. */
struct physical {
    struct handle handle;
    uint64_t bytes;
    uint32_t references, mappings;
    bool imported; /* another process's: takes no memory here */
    CUmemLocation location;
    int handle_types;
};

extern pthread_mutex_t vmm_lock;

/* The object of a handle with references; NULL if it is none. */
struct physical *physical_of(CUmemGenericAllocationHandle handle);
/* Frees memory with neither references nor mappings. */
void physical_settle(struct physical *physical);
/* The mapping at `address`; NULL if there is none. */
struct physical *physical_at(CUdeviceptr address);

#endif
