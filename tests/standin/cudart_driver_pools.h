/* Part of cudart_driver.h: the driver's functions for pools, sharing and the
 * memory of graphs; see there. */
#ifndef STANDIN_CUDART_DRIVER_POOLS_H
#define STANDIN_CUDART_DRIVER_POOLS_H

/* clang-format off */
#define POOL_DRIVER_FUNCTIONS(FUNCTION) \
    FUNCTION(pool_create, cuMemPoolCreate, 11020, cuMemPoolCreate) \
    FUNCTION(pool_destroy, cuMemPoolDestroy, 11020, cuMemPoolDestroy) \
    FUNCTION(pool_trim, cuMemPoolTrimTo, 11020, cuMemPoolTrimTo) \
    FUNCTION(pool_get, cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute) \
    FUNCTION(pool_set, cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute) \
    FUNCTION(device_default_pool, cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool) \
    FUNCTION(device_pool, cuDeviceGetMemPool, 11020, cuDeviceGetMemPool) \
    FUNCTION(device_set_pool, cuDeviceSetMemPool, 11020, cuDeviceSetMemPool) \
    FUNCTION(ipc_get, cuIpcGetMemHandle, 4010, cuIpcGetMemHandle) \
    FUNCTION(ipc_open, cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2) \
    FUNCTION(ipc_close, cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle) \
    FUNCTION(external_import, cuImportExternalMemory, 10000, cuImportExternalMemory) \
    FUNCTION(external_map, cuExternalMemoryGetMappedBuffer, 10000, \
             cuExternalMemoryGetMappedBuffer) \
    FUNCTION(external_destroy, cuDestroyExternalMemory, 10000, cuDestroyExternalMemory) \
    FUNCTION(graph_create, cuGraphCreate, 10000, cuGraphCreate) \
    FUNCTION(graph_alloc, cuGraphAddMemAllocNode, 11040, cuGraphAddMemAllocNode) \
    FUNCTION(graph_free, cuGraphAddMemFreeNode, 11040, cuGraphAddMemFreeNode) \
    FUNCTION(graph_trim, cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim)

/* Functions with a variant for per-thread default streams. */
#define POOL_STREAM_FUNCTIONS(FUNCTION) \
    FUNCTION(mem_alloc_async, cuMemAllocAsync, 11020, cuMemAllocAsync) \
    FUNCTION(mem_alloc_from_pool, cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync) \
    FUNCTION(mem_free_async, cuMemFreeAsync, 11020, cuMemFreeAsync)
/* clang-format on */

#endif
