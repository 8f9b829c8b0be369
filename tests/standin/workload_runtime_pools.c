/* The runtime backends' stream-ordered memory, sharing, and memory of graphs. */
#include <string.h>

#include "cuda_abi.h"
#include "workload_runtime.h"

/* As a program calls it that is compiled for per-thread default streams. */
#ifdef PER_THREAD_STREAMS
#define TWIN(symbol) runtime.symbol##_ptsz
#else
#define TWIN(symbol) runtime.symbol
#endif

static int alloc(void **address, size_t bytes, void *stream)
{
    return TWIN(cudaMallocAsync)(address, bytes, stream);
}

static int alloc_from(void **address, size_t bytes, void *pool, void *stream)
{
    return TWIN(cudaMallocFromPoolAsync)(address, bytes, pool, stream);
}

static int release(void *address, void *stream)
{
    return TWIN(cudaFreeAsync)(address, stream);
}

static struct cudaMemPoolProps properties_of(int device)
{
    return (struct cudaMemPoolProps){
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                      device < 0 ? 0 : device },
    };
}

static int pool_create(void **pool, int device)
{
    struct cudaMemPoolProps properties = properties_of(device);
    return runtime.cudaMemPoolCreate((cudaMemPool_t *)pool, &properties);
}

static int pool_destroy(void *pool)
{
    return runtime.cudaMemPoolDestroy(pool);
}

static int pool_trim(void *pool, size_t kept_bytes)
{
    return runtime.cudaMemPoolTrimTo(pool, kept_bytes);
}

static int pool_get(void *pool, int attribute, uint64_t *value)
{
    return runtime.cudaMemPoolGetAttribute(pool, attribute, value);
}

static int pool_set(void *pool, int attribute, uint64_t value)
{
    return runtime.cudaMemPoolSetAttribute(pool, attribute, &value);
}

static int device_default_pool(void **pool, int device)
{
    return runtime.cudaDeviceGetDefaultMemPool((cudaMemPool_t *)pool, device);
}

static int device_set_pool(int device, void *pool)
{
    return runtime.cudaDeviceSetMemPool(device, pool);
}

static int ipc_get(unsigned char handle[SHARED_HANDLE_BYTES], void *address)
{
    return runtime.cudaIpcGetMemHandle((cudaIpcMemHandle_t *)handle, address);
}

static int ipc_open(void **address, const unsigned char handle[SHARED_HANDLE_BYTES])
{
    cudaIpcMemHandle_t given;
    memcpy(&given, handle, sizeof given);
    return runtime.cudaIpcOpenMemHandle(address, given, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static int ipc_close(void *address)
{
    return runtime.cudaIpcCloseMemHandle(address);
}

static int external_import(void **memory, int fd, size_t bytes)
{
    struct cudaExternalMemoryHandleDesc description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = bytes
    };
    return runtime.cudaImportExternalMemory((cudaExternalMemory_t *)memory, &description);
}

static int external_map(void **address, void *memory, size_t offset, size_t bytes)
{
    struct cudaExternalMemoryBufferDesc description = { .offset = offset, .size = bytes };
    return runtime.cudaExternalMemoryGetMappedBuffer(address, memory, &description);
}

static int external_destroy(void *memory)
{
    return runtime.cudaDestroyExternalMemory(memory);
}

static int graph_create(void **graph)
{
    return runtime.cudaGraphCreate((cudaGraph_t *)graph, 0);
}

static int graph_alloc(void *graph, int device, size_t bytes, void **address)
{
    cudaGraphNode_t node;
    struct cudaMemAllocNodeParams params = { .poolProps = properties_of(device),
                                             .bytesize = bytes };
    int error = runtime.cudaGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
    if (!error)
        *address = params.dptr;
    return error;
}

static int graph_free(void *graph, void *address)
{
    cudaGraphNode_t node;
    return runtime.cudaGraphAddMemFreeNode(&node, graph, NULL, 0, address);
}

static int graph_trim(int device)
{
    return runtime.cudaDeviceGraphMemTrim(device);
}

const struct pool_api runtime_pools = {
    .alloc = alloc,
    .alloc_from = alloc_from,
    .release = release,
    .pool_create = pool_create,
    .pool_destroy = pool_destroy,
    .pool_trim = pool_trim,
    .pool_get = pool_get,
    .pool_set = pool_set,
    .device_default_pool = device_default_pool,
    .device_set_pool = device_set_pool,
    .ipc_get = ipc_get,
    .ipc_open = ipc_open,
    .ipc_close = ipc_close,
    .external_import = external_import,
    .external_map = external_map,
    .external_destroy = external_destroy,
    .graph_create = graph_create,
    .graph_alloc = graph_alloc,
    .graph_free = graph_free,
    .graph_trim = graph_trim,
};
