/* Stand-in libcuda: memsets. They return at once, like those of a GPU. */
#include "cuda_internal.h"

static CUresult fill(CUdeviceptr dst, unsigned int value, unsigned int element_bytes,
                     uint64_t pitch, uint64_t width, uint64_t height, struct order order)
{
    uint64_t row = width * element_bytes;
    if (dst % element_bytes || (height > 1 && (row > pitch || pitch % element_bytes)))
        return CUDA_ERROR_INVALID_VALUE;
    if (row && height && blocks_state(dst, (height - 1) * pitch + row) != BLOCK_LIVE)
        return CUDA_ERROR_INVALID_VALUE;
    bool captured;
    struct activity activity;
    CUresult error = order_check(order, &captured);
    if (!error && !captured && row && height && order_is_told(order, &activity)) {
        activity.kind = ACTIVITY_MEMSET;
        activity.value = value;
        activity.bytes = row * height;
        activity.memory_kind = MEMORY_DEVICE;
        activity_tell(activity);
    }
    return error;
}

#define DEFINE_SETS(bits, type)                                                                    \
    DEFINE_TWINS(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr dst, type value, size_t count),         \
                 (fill(dst, value, bits / 8, 0, count, 1, BLOCKING)))                              \
    DEFINE_TWINS(cuMemsetD##bits##Async, _ptsz,                                                    \
                 (CUdeviceptr dst, type value, size_t count, CUstream stream),                     \
                 (fill(dst, value, bits / 8, 0, count, 1, ON(stream))))                            \
    DEFINE_TWINS(cuMemsetD2D##bits##_v2, _ptds,                                                    \
                 (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),         \
                 (fill(dst, value, bits / 8, pitch, width, height, BLOCKING)))                     \
    DEFINE_TWINS(                                                                                  \
        cuMemsetD2D##bits##Async, _ptsz,                                                           \
        (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream), \
        (fill(dst, value, bits / 8, pitch, width, height, ON(stream))))

DEFINE_SETS(8, unsigned char)
DEFINE_SETS(16, unsigned short)
DEFINE_SETS(32, unsigned int)
