/* The driver backend's stream-ordered memory, sharing, and memory of graphs. */
#include <string.h>

#include "workload_driver.h"

static int alloc(void **address, size_t bytes, void *stream)
{
    return cuMemAllocAsync((CUdeviceptr *)address, bytes, stream);
}

static int alloc_from(void **address, size_t bytes, void *pool, void *stream)
{
    return cuMemAllocFromPoolAsync((CUdeviceptr *)address, bytes, pool, stream);
}

static int release(void *address, void *stream)
{
    return cuMemFreeAsync((CUdeviceptr)address, stream);
}

static CUmemPoolProps properties_of(int device)
{
    return (CUmemPoolProps){
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                      device < 0 ? 0 : device },
    };
}

static int pool_create(void **pool, int device)
{
    CUmemPoolProps properties = properties_of(device);
    return cuMemPoolCreate((CUmemoryPool *)pool, &properties);
}

static int pool_destroy(void *pool)
{
    return cuMemPoolDestroy(pool);
}

static int pool_trim(void *pool, size_t kept_bytes)
{
    return cuMemPoolTrimTo(pool, kept_bytes);
}

static int pool_get(void *pool, int attribute, uint64_t *value)
{
    return cuMemPoolGetAttribute(pool, attribute, value);
}

static int pool_set(void *pool, int attribute, uint64_t value)
{
    return cuMemPoolSetAttribute(pool, attribute, &value);
}

static int device_default_pool(void **pool, int device)
{
    return cuDeviceGetDefaultMemPool((CUmemoryPool *)pool, device);
}

static int device_set_pool(int device, void *pool)
{
    return cuDeviceSetMemPool(device, pool);
}

static int ipc_get(unsigned char handle[SHARED_HANDLE_BYTES], void *address)
{
    return cuIpcGetMemHandle((CUipcMemHandle *)handle, (CUdeviceptr)address);
}

static int ipc_open(void **address, const unsigned char handle[SHARED_HANDLE_BYTES])
{
    CUipcMemHandle given;
    memcpy(&given, handle, sizeof given);
    return cuIpcOpenMemHandle_v2((CUdeviceptr *)address, given, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static int ipc_close(void *address)
{
    return cuIpcCloseMemHandle((CUdeviceptr)address);
}

static int external_import(void **memory, int fd, size_t bytes)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = bytes
    };
    return cuImportExternalMemory((CUexternalMemory *)memory, &description);
}

static int external_map(void **address, void *memory, size_t offset, size_t bytes)
{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC description = { .offset = offset, .size = bytes };
    return cuExternalMemoryGetMappedBuffer((CUdeviceptr *)address, memory, &description);
}

static int external_destroy(void *memory)
{
    return cuDestroyExternalMemory(memory);
}

static int graph_create(void **graph)
{
    return cuGraphCreate((CUgraph *)graph, 0);
}

static int graph_alloc(void *graph, int device, size_t bytes, void **address)
{
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS params = { .poolProps = properties_of(device), .bytesize = bytes };
    int error = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
    if (!error)
        *address = (void *)params.dptr;
    return error;
}

static int graph_free(void *graph, void *address)
{
    CUgraphNode node;
    return cuGraphAddMemFreeNode(&node, graph, NULL, 0, (CUdeviceptr)address);
}

const struct pool_api driver_pools = {
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
    .graph_trim = cuDeviceGraphMemTrim,
};
