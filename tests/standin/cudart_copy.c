/*
 * Stand-in runtime: copies and sets. The driver's function follows from the
 * kind; with cudaMemcpyDefault, the driver finds out what the addresses are.
 */
#include <stdbool.h>

#include "cudart_internal.h"

#define ADDRESS(pointer) ((CUdeviceptr)(pointer))

static cudaError_t copy(const struct stream_driver *streams, void *dst, const void *src,
                        size_t bytes, cudaMemcpyKind kind)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return streams->copy_h2d(ADDRESS(dst), src, bytes);
    case cudaMemcpyDeviceToHost:
        return streams->copy_d2h(dst, ADDRESS(src), bytes);
    case cudaMemcpyDeviceToDevice:
        return streams->copy_d2d(ADDRESS(dst), ADDRESS(src), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return streams->copy(ADDRESS(dst), ADDRESS(src), bytes);
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

static cudaError_t copy_async(const struct stream_driver *streams, void *dst, const void *src,
                              size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return streams->copy_h2d_async(ADDRESS(dst), src, bytes, stream);
    case cudaMemcpyDeviceToHost:
        return streams->copy_d2h_async(dst, ADDRESS(src), bytes, stream);
    case cudaMemcpyDeviceToDevice:
        return streams->copy_d2d_async(ADDRESS(dst), ADDRESS(src), bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return streams->copy_async(ADDRESS(dst), ADDRESS(src), bytes, stream);
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

/* The two ends of a copy kind. */
static bool memory_types(cudaMemcpyKind kind, CUmemorytype *dst, CUmemorytype *src)
{
    static const struct {
        CUmemorytype dst, src;
    } types[] = {
        [cudaMemcpyHostToHost] = { CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST },
        [cudaMemcpyHostToDevice] = { CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST },
        [cudaMemcpyDeviceToHost] = { CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE },
        [cudaMemcpyDeviceToDevice] = { CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE },
        [cudaMemcpyDefault] = { CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED },
    };
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return false;
    *dst = types[kind].dst;
    *src = types[kind].src;
    return true;
}

static bool fill_2d(CUDA_MEMCPY2D *copy, void *dst, size_t dst_pitch, const void *src,
                    size_t src_pitch, size_t width, size_t height, cudaMemcpyKind kind)
{
    /* Of host and device address, the driver uses the one of the type. */
    *copy = (CUDA_MEMCPY2D){
        .srcHost = src,
        .srcDevice = ADDRESS(src),
        .srcPitch = src_pitch,
        .dstHost = dst,
        .dstDevice = ADDRESS(dst),
        .dstPitch = dst_pitch,
        .WidthInBytes = width,
        .Height = height,
    };
    return memory_types(kind, &copy->dstMemoryType, &copy->srcMemoryType);
}

static bool fill_3d(CUDA_MEMCPY3D *copy, const struct cudaMemcpy3DParms *p)
{
    if (!p)
        return false;
    *copy = (CUDA_MEMCPY3D){
        .srcXInBytes = p->srcPos.x,
        .srcY = p->srcPos.y,
        .srcZ = p->srcPos.z,
        .srcHost = p->srcPtr.ptr,
        .srcDevice = ADDRESS(p->srcPtr.ptr),
        .srcArray = (CUarray)p->srcArray,
        .srcPitch = p->srcPtr.pitch,
        .srcHeight = p->srcPtr.ysize,
        .dstXInBytes = p->dstPos.x,
        .dstY = p->dstPos.y,
        .dstZ = p->dstPos.z,
        .dstHost = p->dstPtr.ptr,
        .dstDevice = ADDRESS(p->dstPtr.ptr),
        .dstArray = (CUarray)p->dstArray,
        .dstPitch = p->dstPtr.pitch,
        .dstHeight = p->dstPtr.ysize,
        .WidthInBytes = p->extent.width,
        .Height = p->extent.height,
        .Depth = p->extent.depth,
    };
    if (!memory_types(p->kind, &copy->dstMemoryType, &copy->srcMemoryType))
        return false;
    if (p->srcArray)
        copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    if (p->dstArray)
        copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    return true;
}

static cudaError_t copy_2d(const struct stream_driver *streams, bool async, void *dst,
                           size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                           size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    CUDA_MEMCPY2D copy;
    if (!fill_2d(&copy, dst, dst_pitch, src, src_pitch, width, height, kind))
        return cudaErrorInvalidMemcpyDirection;
    return async ? streams->copy_2d_async(&copy, stream) : streams->copy_2d(&copy);
}

static cudaError_t copy_3d(const struct stream_driver *streams, bool async,
                           const struct cudaMemcpy3DParms *params, cudaStream_t stream)
{
    CUDA_MEMCPY3D copy;
    if (!fill_3d(&copy, params))
        return cudaErrorInvalidValue;
    return async ? streams->copy_3d_async(&copy, stream) : streams->copy_3d(&copy);
}

static cudaError_t copy_peer(bool async, void *dst, int dst_device, const void *src, int src_device,
                             size_t bytes, cudaStream_t stream)
{
    CUcontext dst_context, src_context;
    cudaError_t error = runtime_context(dst_device, &dst_context);
    if (!error)
        error = runtime_context(src_device, &src_context);
    if (error)
        return error;
    return async ? driver.legacy.copy_peer_async(ADDRESS(dst), dst_context, ADDRESS(src),
                                                 src_context, bytes, stream)
                 : driver.legacy.copy_peer(ADDRESS(dst), dst_context, ADDRESS(src), src_context,
                                           bytes);
}

/* Arrays have rows on a GPU; here only the first can be reached. */
static cudaError_t copy_to_array(const struct stream_driver *streams, cudaArray_t dst, size_t x,
                                 size_t y, const void *src, size_t bytes, cudaMemcpyKind kind)
{
    if (y)
        return cudaErrorInvalidValue;
    return kind == cudaMemcpyDeviceToDevice
               ? streams->copy_d2a((CUarray)dst, x, ADDRESS(src), bytes)
               : streams->copy_h2a((CUarray)dst, x, src, bytes);
}

static cudaError_t copy_from_array(const struct stream_driver *streams, void *dst,
                                   cudaArray_const_t src, size_t x, size_t y, size_t bytes,
                                   cudaMemcpyKind kind)
{
    if (y)
        return cudaErrorInvalidValue;
    return kind == cudaMemcpyDeviceToDevice
               ? streams->copy_a2d(ADDRESS(dst), (CUarray)src, x, bytes)
               : streams->copy_a2h(dst, (CUarray)src, x, bytes);
}

DEFINE_TWINS(cudaMemcpy, _ptds, (void *dst, const void *src, size_t bytes, cudaMemcpyKind kind),
             copy(streams, dst, src, bytes, kind))
DEFINE_TWINS(cudaMemcpyAsync, _ptsz,
             (void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream),
             copy_async(streams, dst, src, bytes, kind, stream))
DEFINE(cudaMemcpyPeer, (void *dst, int dst_device, const void *src, int src_device, size_t bytes),
       copy_peer(false, dst, dst_device, src, src_device, bytes, NULL))
DEFINE(cudaMemcpyPeerAsync,
       (void *dst, int dst_device, const void *src, int src_device, size_t bytes,
        cudaStream_t stream),
       copy_peer(true, dst, dst_device, src, src_device, bytes, stream))
DEFINE_TWINS(cudaMemcpy2D, _ptds,
             (void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
              size_t height, cudaMemcpyKind kind),
             copy_2d(streams, false, dst, dst_pitch, src, src_pitch, width, height, kind, NULL))
DEFINE_TWINS(cudaMemcpy2DAsync, _ptsz,
             (void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
              size_t height, cudaMemcpyKind kind, cudaStream_t stream),
             copy_2d(streams, true, dst, dst_pitch, src, src_pitch, width, height, kind, stream))
DEFINE_TWINS(cudaMemcpy3D, _ptds, (const struct cudaMemcpy3DParms *params),
             copy_3d(streams, false, params, NULL))
DEFINE_TWINS(cudaMemcpy3DAsync, _ptsz,
             (const struct cudaMemcpy3DParms *params, cudaStream_t stream),
             copy_3d(streams, true, params, stream))
DEFINE_TWINS(cudaMemcpyToArray, _ptds,
             (cudaArray_t dst, size_t x, size_t y, const void *src, size_t bytes,
              cudaMemcpyKind kind),
             copy_to_array(streams, dst, x, y, src, bytes, kind))
DEFINE_TWINS(cudaMemcpyFromArray, _ptds,
             (void *dst, cudaArray_const_t src, size_t x, size_t y, size_t bytes,
              cudaMemcpyKind kind),
             copy_from_array(streams, dst, src, x, y, bytes, kind))
DEFINE_TWINS(cudaMemcpyArrayToArray, _ptds,
             (cudaArray_t dst, size_t dst_x, size_t dst_y, cudaArray_const_t src, size_t src_x,
              size_t src_y, size_t bytes, cudaMemcpyKind kind),
             ((void)kind, dst_y || src_y
                              ? cudaErrorInvalidValue
                              : streams->copy_a2a((CUarray)dst, dst_x, (CUarray)src, src_x, bytes)))
DEFINE_TWINS(cudaMemcpyBatchAsync, _ptsz,
             (void **dsts, void **srcs, size_t *sizes, size_t count,
              cudaMemcpyAttributes *attributes, size_t *attribute_indexes, size_t attribute_count,
              size_t *failed_index, cudaStream_t stream),
             streams->copy_batch_async((CUdeviceptr *)dsts, (CUdeviceptr *)srcs, sizes, count,
                                       attributes, attribute_indexes, attribute_count, failed_index,
                                       stream))

DEFINE_TWINS(cudaMemset, _ptds, (void *dst, int value, size_t bytes),
             streams->set(ADDRESS(dst), (unsigned char)value, bytes))
DEFINE_TWINS(cudaMemsetAsync, _ptsz, (void *dst, int value, size_t bytes, cudaStream_t stream),
             streams->set_async(ADDRESS(dst), (unsigned char)value, bytes, stream))

DEFINE_TWINS(cudaMemcpyWithAttributesAsync, _ptsz,
             (void *dst, const void *src, size_t bytes, cudaMemcpyAttributes *attributes,
              cudaStream_t stream),
             streams->copy_with(ADDRESS(dst), ADDRESS(src), bytes, attributes, stream))
DEFINE_TWINS(cudaMemcpy3DWithAttributesAsync, _ptsz,
             (struct cudaMemcpy3DBatchOp * cuboid, unsigned long long flags, cudaStream_t stream),
             streams->copy_3d_with((CUDA_MEMCPY3D_BATCH_OP *)cuboid, flags, stream))
#define PREFETCH_BATCH(symbol, member)                                                         \
    DEFINE_TWINS(symbol, _ptsz,                                                                \
                 (void **addresses, size_t *sizes, size_t count,                               \
                  struct cudaMemLocation *locations, size_t *location_indexes,                 \
                  size_t location_count, unsigned long long flags, cudaStream_t stream),       \
                 streams->member((CUdeviceptr *)addresses, sizes, count,                       \
                                 (CUmemLocation *)locations, location_indexes, location_count, \
                                 flags, stream))
PREFETCH_BATCH(cudaMemPrefetchBatchAsync, prefetch_batch)
PREFETCH_BATCH(cudaMemDiscardAndPrefetchBatchAsync, discard_and_prefetch_batch)
