/*
 * Every kind of memory behind the same few functions for both APIs, beside
 * those of api.h. Each returns 0 or the API's error code. Virtual memory
 * management and contexts are the driver's alone.
 */
#ifndef GPUPROBE_TESTS_GPU_KINDS_API_H
#define GPUPROBE_TESTS_GPU_KINDS_API_H

#include "api.h"

#include <cstdint>
#include <cstring>

#include <cuda.h>

namespace api {

struct Ipc {
    char bytes[64];
};

inline CUdeviceptr device_pointer(void *address)
{
    return static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(address));
}

#ifdef DRIVER_API

typedef CUstream Stream;
typedef CUmemoryPool Pool;
typedef CUgraph Graph;
typedef CUgraphExec Executable;
typedef CUarray Array;
typedef CUmipmappedArray Mipmapped;

inline int start()
{
    return set_device(0);
}

inline int reset()
{
    CUcontext context;
    int error = cuDevicePrimaryCtxReset(0);
    if (!error)
        error = cuDevicePrimaryCtxRetain(&context, 0);
    return error ? error : static_cast<int>(cuCtxSetCurrent(context));
}

inline int alloc_pitched(void **address, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr pointer = 0;
    int error = cuMemAllocPitch(&pointer, pitch, width, height, 4);
    *address = reinterpret_cast<void *>(static_cast<uintptr_t>(pointer));
    return error;
}

inline int alloc_volume(void **address, size_t *pitch, size_t width, size_t height, size_t depth)
{
    return alloc_pitched(address, pitch, width, height * depth);
}

inline int alloc_managed(void **address, size_t bytes)
{
    CUdeviceptr pointer = 0;
    int error = cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    *address = reinterpret_cast<void *>(static_cast<uintptr_t>(pointer));
    return error;
}

inline int alloc_host(void **address, size_t bytes)
{
    return cuMemAllocHost(address, bytes);
}

inline int alloc_host_flags(void **address, size_t bytes)
{
    return cuMemHostAlloc(address, bytes, CU_MEMHOSTALLOC_PORTABLE);
}

inline int free_host(void *address)
{
    return cuMemFreeHost(address);
}

inline int register_host(void *address, size_t bytes)
{
    return cuMemHostRegister(address, bytes, 0);
}

inline int unregister_host(void *address)
{
    return cuMemHostUnregister(address);
}

inline int create_stream(Stream *stream)
{
    return cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
}

inline int alloc_async(void **address, size_t bytes, Stream stream)
{
    CUdeviceptr pointer = 0;
    int error = cuMemAllocAsync(&pointer, bytes, stream);
    *address = reinterpret_cast<void *>(static_cast<uintptr_t>(pointer));
    return error;
}

inline int free_async(void *address, Stream stream)
{
    return cuMemFreeAsync(device_pointer(address), stream);
}

inline int create_pool(Pool *pool)
{
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return cuMemPoolCreate(pool, &properties);
}

inline int alloc_from_pool(void **address, size_t bytes, Pool pool, Stream stream)
{
    CUdeviceptr pointer = 0;
    int error = cuMemAllocFromPoolAsync(&pointer, bytes, pool, stream);
    *address = reinterpret_cast<void *>(static_cast<uintptr_t>(pointer));
    return error;
}

inline int pool_reserved(Pool pool, uint64_t *bytes)
{
    return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes);
}

inline int destroy_pool(Pool pool)
{
    return cuMemPoolDestroy(pool);
}

inline CUDA_ARRAY3D_DESCRIPTOR describe(size_t width, size_t height, size_t depth, unsigned channels)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    descriptor.Width = width;
    descriptor.Height = height;
    descriptor.Depth = depth;
    descriptor.Format = CU_AD_FORMAT_FLOAT;
    descriptor.NumChannels = channels;
    return descriptor;
}

inline int create_array(Array *array, size_t width, size_t height)
{
    CUDA_ARRAY_DESCRIPTOR descriptor = { width, height, CU_AD_FORMAT_FLOAT, 1 };
    return cuArrayCreate(array, &descriptor);
}

inline int create_volume(Array *array, size_t width, size_t height, size_t depth)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = describe(width, height, depth, 4);
    return cuArray3DCreate(array, &descriptor);
}

inline int create_mipmapped(Mipmapped *array, size_t width, size_t height, unsigned levels)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = describe(width, height, 0, 1);
    return cuMipmappedArrayCreate(array, &descriptor, levels);
}

inline int destroy_array(Array array)
{
    return cuArrayDestroy(array);
}

inline int destroy_mipmapped(Mipmapped array)
{
    return cuMipmappedArrayDestroy(array);
}

inline int create_graph(Graph *graph)
{
    return cuGraphCreate(graph, 0);
}

inline int add_alloc_node(Graph graph, size_t bytes, void **address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
    CUgraphNode node;
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    parameters.bytesize = bytes;
    int error = cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters);
    *address = reinterpret_cast<void *>(static_cast<uintptr_t>(parameters.dptr));
    return error;
}

inline int begin_capture(Stream stream)
{
    return cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

inline int end_capture(Stream stream, Graph *graph)
{
    return cuStreamEndCapture(stream, graph);
}

inline int instantiate(Executable *executable, Graph graph)
{
    return cuGraphInstantiateWithFlags(executable, graph, 0);
}

inline int launch_graph(Executable executable, Stream stream)
{
    return cuGraphLaunch(executable, stream);
}

inline int destroy_graph(Graph graph, Executable executable)
{
    int error = cuGraphExecDestroy(executable);
    return error ? error : static_cast<int>(cuGraphDestroy(graph));
}

inline int synchronize(Stream stream)
{
    return cuStreamSynchronize(stream);
}

inline int export_ipc(Ipc *ipc, void *address)
{
    return cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle *>(ipc), device_pointer(address));
}

inline int open_ipc(void **address, const Ipc &ipc)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer = 0;
    memcpy(&handle, &ipc, sizeof handle);
    int error = cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    *address = reinterpret_cast<void *>(static_cast<uintptr_t>(pointer));
    return error;
}

inline int close_ipc(void *address)
{
    return cuIpcCloseMemHandle(device_pointer(address));
}

#else

typedef cudaStream_t Stream;
typedef cudaMemPool_t Pool;
typedef cudaGraph_t Graph;
typedef cudaGraphExec_t Executable;
typedef cudaArray_t Array;
typedef cudaMipmappedArray_t Mipmapped;

inline int start()
{
    int error = cudaSetDevice(0);
    return error ? error : static_cast<int>(cudaFree(nullptr));
}

inline int reset()
{
    int error = cudaDeviceReset();
    return error ? error : start();
}

inline int alloc_pitched(void **address, size_t *pitch, size_t width, size_t height)
{
    return cudaMallocPitch(address, pitch, width, height);
}

inline int alloc_volume(void **address, size_t *pitch, size_t width, size_t height, size_t depth)
{
    cudaPitchedPtr pitched;
    int error = cudaMalloc3D(&pitched, make_cudaExtent(width, height, depth));
    *address = pitched.ptr;
    *pitch = pitched.pitch;
    return error;
}

inline int alloc_managed(void **address, size_t bytes)
{
    return cudaMallocManaged(address, bytes);
}

inline int alloc_host(void **address, size_t bytes)
{
    return cudaMallocHost(address, bytes);
}

inline int alloc_host_flags(void **address, size_t bytes)
{
    return cudaHostAlloc(address, bytes, cudaHostAllocPortable);
}

inline int free_host(void *address)
{
    return cudaFreeHost(address);
}

inline int register_host(void *address, size_t bytes)
{
    return cudaHostRegister(address, bytes, cudaHostRegisterDefault);
}

inline int unregister_host(void *address)
{
    return cudaHostUnregister(address);
}

inline int create_stream(Stream *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
}

inline int alloc_async(void **address, size_t bytes, Stream stream)
{
    return cudaMallocAsync(address, bytes, stream);
}

inline int free_async(void *address, Stream stream)
{
    return cudaFreeAsync(address, stream);
}

inline int create_pool(Pool *pool)
{
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    return cudaMemPoolCreate(pool, &properties);
}

inline int alloc_from_pool(void **address, size_t bytes, Pool pool, Stream stream)
{
    return cudaMallocFromPoolAsync(address, bytes, pool, stream);
}

inline int pool_reserved(Pool pool, uint64_t *bytes)
{
    return cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, bytes);
}

inline int destroy_pool(Pool pool)
{
    return cudaMemPoolDestroy(pool);
}

inline int create_array(Array *array, size_t width, size_t height)
{
    cudaChannelFormatDesc format = { 32, 0, 0, 0, cudaChannelFormatKindFloat };
    return cudaMallocArray(array, &format, width, height);
}

inline int create_volume(Array *array, size_t width, size_t height, size_t depth)
{
    cudaChannelFormatDesc format = { 32, 32, 32, 32, cudaChannelFormatKindFloat };
    return cudaMalloc3DArray(array, &format, make_cudaExtent(width, height, depth));
}

inline int create_mipmapped(Mipmapped *array, size_t width, size_t height, unsigned levels)
{
    cudaChannelFormatDesc format = { 32, 0, 0, 0, cudaChannelFormatKindFloat };
    return cudaMallocMipmappedArray(array, &format, make_cudaExtent(width, height, 0), levels);
}

inline int destroy_array(Array array)
{
    return cudaFreeArray(array);
}

inline int destroy_mipmapped(Mipmapped array)
{
    return cudaFreeMipmappedArray(array);
}

inline int create_graph(Graph *graph)
{
    return cudaGraphCreate(graph, 0);
}

inline int add_alloc_node(Graph graph, size_t bytes, void **address)
{
    cudaMemAllocNodeParams parameters = {};
    cudaGraphNode_t node;
    parameters.poolProps.allocType = cudaMemAllocationTypePinned;
    parameters.poolProps.location.type = cudaMemLocationTypeDevice;
    parameters.bytesize = bytes;
    int error = cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters);
    *address = parameters.dptr;
    return error;
}

inline int begin_capture(Stream stream)
{
    return cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
}

inline int end_capture(Stream stream, Graph *graph)
{
    return cudaStreamEndCapture(stream, graph);
}

inline int instantiate(Executable *executable, Graph graph)
{
    return cudaGraphInstantiate(executable, graph, 0);
}

inline int launch_graph(Executable executable, Stream stream)
{
    return cudaGraphLaunch(executable, stream);
}

inline int destroy_graph(Graph graph, Executable executable)
{
    int error = cudaGraphExecDestroy(executable);
    return error ? error : static_cast<int>(cudaGraphDestroy(graph));
}

inline int synchronize(Stream stream)
{
    return cudaStreamSynchronize(stream);
}

inline int export_ipc(Ipc *ipc, void *address)
{
    return cudaIpcGetMemHandle(reinterpret_cast<cudaIpcMemHandle_t *>(ipc), address);
}

inline int open_ipc(void **address, const Ipc &ipc)
{
    cudaIpcMemHandle_t handle;
    memcpy(&handle, &ipc, sizeof handle);
    return cudaIpcOpenMemHandle(address, handle, cudaIpcMemLazyEnablePeerAccess);
}

inline int close_ipc(void *address)
{
    return cudaIpcCloseMemHandle(address);
}

#endif

} // namespace api

#endif
