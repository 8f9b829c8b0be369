/* Which CUDA the workload calls. Each program is linked with one backend. */
#ifndef STANDIN_WORKLOAD_BACKEND_H
#define STANDIN_WORKLOAD_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

#include "workload_pools.h"
#include "workload_memory_api.h"
#include "workload_work.h"

/*
 * All functions return 0 or the CUDA error. For the runtime backends they are
 * the runtime's own functions, so that a call's stack leads straight from
 * cudaMalloc to the workload function that wanted memory.
 */
struct api {
    const char *name;
    /* Opens the runtime at `path`; returns NULL or the reason. NULL for the
     * backends that are linked with their library. */
    const char *(*load)(const char *path);
    /* Before the first command; NULL if there is nothing to do. */
    int (*start)(bool create_contexts);
    /* On every new thread; NULL where threads need nothing. */
    int (*enter_thread)(void);

    int (*alloc)(void **address, size_t bytes);
    int (*release)(void *address);
    int (*set_device)(int device);
    int (*get_device)(int *device);
    int (*device_count)(int *count);
    int (*memory)(size_t *free_bytes, size_t *total_bytes);
    int (*synchronize)(void);
    int (*reset)(void); /* resets the current device; all of its memory is freed */

    const struct work_api *work;
    const struct memory_api *kinds;
    const struct pool_api *pools;
};

/* Not const: `load` fills it in. */
extern struct api api;

#endif
