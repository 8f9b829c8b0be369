/* The stand-in runtime's access to the driver. */
#ifndef STANDIN_CUDART_DRIVER_H
#define STANDIN_CUDART_DRIVER_H

#include "cuda_abi.h"
#include "cuda_activity.h"

/*
 * FUNCTION(member, name for cuGetProcAddress_v2, CUDA version, symbol)
 *
 * The symbol is named for its type; what the driver hands out for the name and
 * the version is that function.
 */
/* clang-format off */
#define DRIVER_FUNCTIONS(FUNCTION) \
    FUNCTION(pool_create, cuMemPoolCreate, 11020, cuMemPoolCreate) \
    FUNCTION(pool_destroy, cuMemPoolDestroy, 11020, cuMemPoolDestroy) \
    FUNCTION(pool_trim, cuMemPoolTrimTo, 11020, cuMemPoolTrimTo) \
    FUNCTION(pool_get, cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute) \
    FUNCTION(pool_set, cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute) \
    FUNCTION(device_default_pool, cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool) \
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
    FUNCTION(graph_trim, cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim) \
    FUNCTION(init, cuInit, 2000, cuInit) \
    FUNCTION(device_get_count, cuDeviceGetCount, 2000, cuDeviceGetCount) \
    FUNCTION(primary_retain, cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain) \
    FUNCTION(primary_reset, cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2) \
    FUNCTION(get_current, cuCtxGetCurrent, 4000, cuCtxGetCurrent) \
    FUNCTION(set_current, cuCtxSetCurrent, 4000, cuCtxSetCurrent) \
    FUNCTION(get_device, cuCtxGetDevice, 13000, cuCtxGetDevice_v2) \
    FUNCTION(synchronize, cuCtxSynchronize, 2000, cuCtxSynchronize) \
    FUNCTION(mem_alloc, cuMemAlloc, 3020, cuMemAlloc_v2) \
    FUNCTION(mem_free, cuMemFree, 3020, cuMemFree_v2) \
    FUNCTION(mem_get_info, cuMemGetInfo, 3020, cuMemGetInfo_v2) \
    FUNCTION(host_alloc, cuMemHostAlloc, 2020, cuMemHostAlloc) \
    FUNCTION(host_free, cuMemFreeHost, 2000, cuMemFreeHost) \
    FUNCTION(mem_alloc_pitch, cuMemAllocPitch, 3020, cuMemAllocPitch_v2) \
    FUNCTION(mem_alloc_managed, cuMemAllocManaged, 6000, cuMemAllocManaged) \
    FUNCTION(host_register, cuMemHostRegister, 6050, cuMemHostRegister_v2) \
    FUNCTION(host_unregister, cuMemHostUnregister, 4000, cuMemHostUnregister) \
    FUNCTION(array_create, cuArray3DCreate, 3020, cuArray3DCreate_v2) \
    FUNCTION(array_destroy, cuArrayDestroy, 2000, cuArrayDestroy) \
    FUNCTION(mipmap_create, cuMipmappedArrayCreate, 5000, cuMipmappedArrayCreate) \
    FUNCTION(mipmap_destroy, cuMipmappedArrayDestroy, 5000, cuMipmappedArrayDestroy) \
    FUNCTION(library_global, cuLibraryGetGlobal, 12000, cuLibraryGetGlobal) \
    FUNCTION(library_managed, cuLibraryGetManaged, 12000, cuLibraryGetManaged) \
    FUNCTION(library_load, cuLibraryLoadData, 12000, cuLibraryLoadData) \
    FUNCTION(library_unload, cuLibraryUnload, 12000, cuLibraryUnload) \
    FUNCTION(library_kernel, cuLibraryGetKernel, 12000, cuLibraryGetKernel) \
    FUNCTION(stream_create, cuStreamCreate, 2000, cuStreamCreate) \
    FUNCTION(stream_destroy, cuStreamDestroy, 4000, cuStreamDestroy_v2) \
    FUNCTION(event_create, cuEventCreate, 2000, cuEventCreate) \
    FUNCTION(event_destroy, cuEventDestroy, 4000, cuEventDestroy_v2) \
    FUNCTION(graph_nodes, cuGraphGetNodes, 10000, cuGraphGetNodes) \
    FUNCTION(graph_instantiate, cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags) \
    FUNCTION(exec_destroy, cuGraphExecDestroy, 10000, cuGraphExecDestroy) \
    FUNCTION(graph_destroy, cuGraphDestroy, 10000, cuGraphDestroy)
/* clang-format on */

/* Functions with a variant for per-thread default streams. */
/* clang-format off */
#define STREAM_FUNCTIONS(FUNCTION) \
    FUNCTION(mem_alloc_async, cuMemAllocAsync, 11020, cuMemAllocAsync) \
    FUNCTION(mem_alloc_from_pool, cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync) \
    FUNCTION(mem_free_async, cuMemFreeAsync, 11020, cuMemFreeAsync) \
    FUNCTION(launch, cuLaunchKernel, 4000, cuLaunchKernel) \
    FUNCTION(launch_ex, cuLaunchKernelEx, 11060, cuLaunchKernelEx) \
    FUNCTION(launch_cooperative, cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel) \
    FUNCTION(stream_synchronize, cuStreamSynchronize, 2000, cuStreamSynchronize) \
    FUNCTION(stream_wait, cuStreamWaitEvent, 3020, cuStreamWaitEvent) \
    FUNCTION(begin_capture, cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2) \
    FUNCTION(end_capture, cuStreamEndCapture, 10000, cuStreamEndCapture) \
    FUNCTION(event_record, cuEventRecord, 2000, cuEventRecord) \
    FUNCTION(graph_launch, cuGraphLaunch, 10000, cuGraphLaunch) \
    FUNCTION(copy, cuMemcpy, 4000, cuMemcpy) \
    FUNCTION(copy_async, cuMemcpyAsync, 4000, cuMemcpyAsync) \
    FUNCTION(copy_h2d, cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2) \
    FUNCTION(copy_d2h, cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2) \
    FUNCTION(copy_d2d, cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2) \
    FUNCTION(copy_h2a, cuMemcpyHtoA, 3020, cuMemcpyHtoA_v2) \
    FUNCTION(copy_a2h, cuMemcpyAtoH, 3020, cuMemcpyAtoH_v2) \
    FUNCTION(copy_d2a, cuMemcpyDtoA, 3020, cuMemcpyDtoA_v2) \
    FUNCTION(copy_a2d, cuMemcpyAtoD, 3020, cuMemcpyAtoD_v2) \
    FUNCTION(copy_a2a, cuMemcpyAtoA, 3020, cuMemcpyAtoA_v2) \
    FUNCTION(copy_h2d_async, cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2) \
    FUNCTION(copy_d2h_async, cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2) \
    FUNCTION(copy_d2d_async, cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2) \
    FUNCTION(copy_peer, cuMemcpyPeer, 4000, cuMemcpyPeer) \
    FUNCTION(copy_peer_async, cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync) \
    FUNCTION(copy_2d, cuMemcpy2DUnaligned, 3020, cuMemcpy2DUnaligned_v2) \
    FUNCTION(copy_2d_async, cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2) \
    FUNCTION(copy_3d, cuMemcpy3D, 3020, cuMemcpy3D_v2) \
    FUNCTION(copy_3d_async, cuMemcpy3DAsync, 3020, cuMemcpy3DAsync_v2) \
    FUNCTION(copy_batch_async, cuMemcpyBatchAsync, 12080, cuMemcpyBatchAsync) \
    FUNCTION(copy_with, cuMemcpyWithAttributesAsync, 13020, cuMemcpyWithAttributesAsync) \
    FUNCTION(copy_3d_with, cuMemcpy3DWithAttributesAsync, 13020, cuMemcpy3DWithAttributesAsync) \
    FUNCTION(prefetch_batch, cuMemPrefetchBatchAsync, 13000, cuMemPrefetchBatchAsync) \
    FUNCTION(discard_and_prefetch_batch, cuMemDiscardAndPrefetchBatchAsync, 13000, \
             cuMemDiscardAndPrefetchBatchAsync) \
    FUNCTION(set, cuMemsetD8, 3020, cuMemsetD8_v2) \
    FUNCTION(set_async, cuMemsetD8Async, 3020, cuMemsetD8Async)
/* clang-format on */

#define DECLARE_MEMBER(member, name, version, symbol) __typeof__(&symbol) member;

struct stream_driver {
    STREAM_FUNCTIONS(DECLARE_MEMBER)
};

/* The driver's functions, as returned by cuGetProcAddress_v2. */
struct driver {
    DRIVER_FUNCTIONS(DECLARE_MEMBER)
    struct stream_driver legacy, per_thread;
    /* The stand-in's own; NULL with a driver that is not the stand-in. */
    __typeof__(&standin_take_failure) take_failure;
    __typeof__(&standin_activity_enter) activity_enter;
    __typeof__(&standin_activity_leave) activity_leave;
};

#undef DECLARE_MEMBER

extern struct driver driver;

/* Loads and initialises the driver on the first call; a cudaError_t, the same
 * one on every call. */
int driver_load(void);

#endif
