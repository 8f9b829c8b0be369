/*
 * The two CUDA APIs behind the same few functions, so that one program can be
 * built for either. Each returns 0 or the API's error code.
 *
 * With -DDRIVER_API the program calls the driver alone (link with -lcuda),
 * otherwise the runtime alone.
 */
#ifndef GPUPROBE_TESTS_GPU_API_H
#define GPUPROBE_TESTS_GPU_API_H

#include <cstddef>

#ifdef DRIVER_API

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>

namespace api {

constexpr const char *name = "driver";

inline bool create_contexts; /* own contexts instead of each device's primary context */

inline int make_context(CUcontext *context, CUdevice device)
{
    if (!create_contexts)
        return cuDevicePrimaryCtxRetain(context, device);
#if CUDA_VERSION >= 13000
    return cuCtxCreate(context, nullptr, 0, device);
#else
    return cuCtxCreate(context, 0, device);
#endif
}

inline int set_device(int ordinal)
{
    static std::mutex mutex;
    static std::map<int, CUcontext> contexts;
    std::lock_guard<std::mutex> lock(mutex);
    auto known = contexts.find(ordinal);
    if (known == contexts.end()) {
        CUdevice device;
        CUcontext context;
        int error = cuInit(0);
        if (!error)
            error = cuDeviceGet(&device, ordinal);
        if (!error)
            error = make_context(&context, device);
        if (error)
            return error;
        known = contexts.emplace(ordinal, context).first;
    }
    return cuCtxSetCurrent(known->second);
}

inline int device_count(int *count)
{
    int error = cuInit(0);
    return error ? error : static_cast<int>(cuDeviceGetCount(count));
}

/* A thread of the driver API has no context until it sets one. */
inline int enter_thread()
{
    return set_device(0);
}

inline int alloc(void **address, size_t bytes)
{
    CUdeviceptr pointer = 0;
    int error = cuMemAlloc(&pointer, bytes);
    *address = reinterpret_cast<void *>(static_cast<uintptr_t>(pointer));
    return error;
}

inline int release(void *address)
{
    return cuMemFree(static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(address)));
}

} // namespace api

#else

#include <cuda_runtime.h>

namespace api {

constexpr const char *name = "runtime";

inline bool create_contexts; /* the runtime uses the primary contexts only */

inline int set_device(int ordinal)
{
    return cudaSetDevice(ordinal);
}

inline int device_count(int *count)
{
    return cudaGetDeviceCount(count);
}

/* A thread of the runtime API starts on device 0. */
inline int enter_thread()
{
    return 0;
}

/* A failed call leaves its error for cudaGetLastError, which is not called here. */
inline int alloc(void **address, size_t bytes)
{
    return cudaMalloc(address, bytes);
}

inline int release(void *address)
{
    return cudaFree(address);
}

} // namespace api

#endif
#endif
