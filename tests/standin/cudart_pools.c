/* Stand-in runtime: stream-ordered memory, sharing, and the memory of graphs. One driver call each,
 * except that zero bytes make none. */
#include <string.h>

#include "cudart_internal.h"

static cudaError_t alloc_async(const struct stream_driver *streams, void **address, size_t bytes,
                               CUmemoryPool pool, cudaStream_t stream)
{
    CUdeviceptr allocated = 0;
    if (!address)
        return cudaErrorInvalidValue;
    cudaError_t error = cudaSuccess;
    if (bytes)
        error = pool ? streams->mem_alloc_from_pool(&allocated, bytes, pool, stream)
                     : streams->mem_alloc_async(&allocated, bytes, stream);
    if (!error)
        *address = (void *)allocated;
    return error;
}

DEFINE_TWINS(cudaMallocAsync, _ptsz, (void **address, size_t bytes, cudaStream_t stream),
             alloc_async(streams, address, bytes, NULL, stream))
DEFINE_TWINS(cudaMallocFromPoolAsync, _ptsz,
             (void **address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
             pool ? alloc_async(streams, address, bytes, pool, stream) : cudaErrorInvalidValue)
DEFINE_TWINS(cudaFreeAsync, _ptsz, (void *address, cudaStream_t stream),
             streams->mem_free_async((CUdeviceptr)address, stream))

/* The structures for pools are the driver's under other names. */
_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "pool properties");

DEFINE(cudaMemPoolCreate, (cudaMemPool_t * pool, const struct cudaMemPoolProps *properties),
       driver.pool_create(pool, (const CUmemPoolProps *)properties))
DEFINE(cudaMemPoolDestroy, (cudaMemPool_t pool), driver.pool_destroy(pool))
DEFINE(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t kept_bytes),
       driver.pool_trim(pool, kept_bytes))
DEFINE(cudaMemPoolGetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value),
       driver.pool_get(pool, attribute, value))
DEFINE(cudaMemPoolSetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value),
       driver.pool_set(pool, attribute, value))
DEFINE(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device),
       driver.device_default_pool(pool, device))
DEFINE(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), driver.device_set_pool(device, pool))

static cudaError_t ipc_open(void **address, const cudaIpcMemHandle_t *handle, unsigned int flags)
{
    CUipcMemHandle given;
    memcpy(&given, handle, sizeof given);
    return driver.ipc_open((CUdeviceptr *)address, given, flags);
}

DEFINE(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *address),
       driver.ipc_get((CUipcMemHandle *)handle, (CUdeviceptr)address))
DEFINE(cudaIpcOpenMemHandle, (void **address, cudaIpcMemHandle_t handle, unsigned int flags),
       ipc_open(address, &handle, flags))
DEFINE(cudaIpcCloseMemHandle, (void *address), driver.ipc_close((CUdeviceptr)address))

static cudaError_t external_import(cudaExternalMemory_t *memory,
                                   const struct cudaExternalMemoryHandleDesc *description)
{
    if (!description)
        return cudaErrorInvalidValue;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC given = { .type = description->type,
                                               .handle.fd = description->handle.fd,
                                               .size = description->size,
                                               .flags = description->flags };
    return driver.external_import(memory, &given);
}

static cudaError_t external_map(void **address, cudaExternalMemory_t memory,
                                const struct cudaExternalMemoryBufferDesc *description)
{
    if (!description)
        return cudaErrorInvalidValue;
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC given = { .offset = description->offset,
                                               .size = description->size,
                                               .flags = description->flags };
    return driver.external_map((CUdeviceptr *)address, memory, &given);
}

DEFINE(cudaImportExternalMemory,
       (cudaExternalMemory_t * memory, const struct cudaExternalMemoryHandleDesc *description),
       external_import(memory, description))
DEFINE(cudaExternalMemoryGetMappedBuffer,
       (void **address, cudaExternalMemory_t memory,
        const struct cudaExternalMemoryBufferDesc *description),
       external_map(address, memory, description))
DEFINE(cudaDestroyExternalMemory, (cudaExternalMemory_t memory), driver.external_destroy(memory))

DEFINE(cudaGraphCreate, (cudaGraph_t * graph, unsigned int flags),
       driver.graph_create(graph, flags))
DEFINE(cudaGraphAddMemAllocNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t dependency_count, struct cudaMemAllocNodeParams *params),
       driver.graph_alloc(node, graph, dependencies, dependency_count,
                          (CUDA_MEM_ALLOC_NODE_PARAMS *)params))
DEFINE(cudaGraphAddMemFreeNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t dependency_count, void *address),
       driver.graph_free(node, graph, dependencies, dependency_count, (CUdeviceptr)address))
DEFINE(cudaDeviceGraphMemTrim, (int device), driver.graph_trim(device))
