/* Stream-ordered memory, sharing, and the memory nodes of graphs, as the workload requests them
 * from its backend. */
#ifndef STANDIN_WORKLOAD_POOLS_H
#define STANDIN_WORKLOAD_POOLS_H

#include <stddef.h>
#include <stdint.h>

#define SHARED_HANDLE_BYTES 64

/* All functions return 0 or the CUDA error. */
struct pool_api {
    int (*alloc)(void **address, size_t bytes, void *stream);
    int (*alloc_from)(void **address, size_t bytes, void *pool, void *stream);
    int (*release)(void *address, void *stream);

    int (*pool_create)(void **pool, int device); /* device -1: on the host */
    int (*pool_destroy)(void *pool);
    int (*pool_trim)(void *pool, size_t kept_bytes);
    int (*pool_get)(void *pool, int attribute, uint64_t *value);
    int (*pool_set)(void *pool, int attribute, uint64_t value);
    int (*device_default_pool)(void **pool, int device);
    int (*device_set_pool)(int device, void *pool);

    int (*ipc_get)(unsigned char handle[SHARED_HANDLE_BYTES], void *address);
    int (*ipc_open)(void **address, const unsigned char handle[SHARED_HANDLE_BYTES]);
    int (*ipc_close)(void *address);

    int (*external_import)(void **memory, int fd, size_t bytes);
    int (*external_map)(void **address, void *memory, size_t offset, size_t bytes);
    int (*external_destroy)(void *memory);

    int (*graph_create)(void **graph);
    int (*graph_alloc)(void *graph, int device, size_t bytes, void **address);
    int (*graph_free)(void *graph, void *address);
    int (*graph_trim)(int device);
};

#endif
