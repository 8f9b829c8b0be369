/*
 * Stand-in libcuda: arrays, with and without mipmaps.
 *
 * Each takes what its elements need, without the padding that real hardware
 * adds: no program is told how much that is. A sparse array, and one that is to
 * be mapped later, take nothing.
 */
#include "cuda_internal.h"

#define MAX_ARRAY_SIDE (1u << 20)
#define MAX_LEVELS 21
#define WITHOUT_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

/* A CUarray or a CUmipmappedArray. */
struct array {
    struct handle handle;
    CUcontext owner;
    uint64_t block; /* 0: without memory */
};

_Static_assert(sizeof(struct array) <= HANDLE_BYTES, "an array must fit its slot");

/* The layout of a format: `bytes` for each square of `side` elements, of each channel or of all.
 * bytes == 0: a format that the stand-in lacks. */
struct layout {
    unsigned int bytes, side;
};

static unsigned int channel_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default: /* normalised: threes of 8, 16, 8 and 16 bits */
        if (format < CU_AD_FORMAT_UNORM_INT8X1 || format > CU_AD_FORMAT_SNORM_INT16X4)
            return 0;
        return (format - CU_AD_FORMAT_UNORM_INT8X1) / 3 % 2 ? 2 : 1;
    }
}

static struct layout layout_of(CUarray_format format, unsigned int channels)
{
    if (format == CU_AD_FORMAT_UNORM_INT_101010_2)
        return (struct layout){ 4, 1 };
    if (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB) {
        bool half = format <= CU_AD_FORMAT_BC1_UNORM_SRGB || format == CU_AD_FORMAT_BC4_UNORM ||
                    format == CU_AD_FORMAT_BC4_SNORM;
        return (struct layout){ half ? 8 : 16, 4 };
    }
    return (struct layout){ channel_bytes(format) * channels, 1 };
}

static size_t at_least_one(size_t n)
{
    return n ? n : 1;
}

static uint64_t level_bytes(struct layout layout, size_t width, size_t height, size_t depth)
{
    size_t columns = (at_least_one(width) + layout.side - 1) / layout.side;
    size_t rows = (at_least_one(height) + layout.side - 1) / layout.side;
    return columns * rows * at_least_one(depth) * layout.bytes;
}

/* Each level is half of the one before in every direction; layers and faces are
 * not halved. 0: not the descriptor of an array. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
    struct layout layout = layout_of(d->Format, d->NumChannels);
    bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    if (!layout.bytes || d->Width == 0 || d->Width > MAX_ARRAY_SIDE || d->Height > MAX_ARRAY_SIDE ||
        d->Depth > MAX_ARRAY_SIDE ||
        (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4) ||
        (layered && d->Depth == 0) || ((d->Flags & CUDA_ARRAY3D_CUBEMAP) && d->Depth % 6))
        return 0;
    uint64_t bytes = 0;
    for (unsigned int level = 0; level < levels; level++)
        bytes += level_bytes(layout, d->Width >> level, d->Height >> level,
                             layered ? d->Depth : d->Depth >> level);
    return bytes;
}

static CUresult array_new(void **result, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                          unsigned int levels, enum handle_kind kind)
{
    CUcontext context;
    CUresult error = context_current(&context);
    if (error)
        return error;
    if (!result || !descriptor || levels == 0 || levels > MAX_LEVELS)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = array_bytes(descriptor, levels), block = 0;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!(descriptor->Flags & WITHOUT_MEMORY) &&
        !blocks_take_inner(context, context->device, bytes, &block))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct array *array = handle_take(kind);
    if (!array) {
        blocks_release_inner(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    array->owner = context;
    array->block = block;
    *result = array;
    return CUDA_SUCCESS;
}

static CUresult array_delete(struct array *array, enum handle_kind kind)
{
    if (!handle_is(array, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    if (array->block)
        blocks_release_inner(array->block);
    handle_release(array);
    return CUDA_SUCCESS;
}

static void delete_if_owned(void *object, void *context)
{
    struct array *array = object;
    if (array->owner == context)
        handle_release(array); /* its memory was freed with the context's */
}

void arrays_release_owned(CUcontext context)
{
    handles_each(HANDLE_ARRAY, delete_if_owned, context);
    handles_each(HANDLE_MIPMAPPED_ARRAY, delete_if_owned, context);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    ENTER_INITIALIZED();
    if (!descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR flat = { descriptor->Width,  descriptor->Height,      0,
                                     descriptor->Format, descriptor->NumChannels, 0 };
    return array_new((void **)array, &flat, 1, HANDLE_ARRAY);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    ENTER_INITIALIZED();
    return array_new((void **)array, descriptor, 1, HANDLE_ARRAY);
}

CUresult cuArrayDestroy(CUarray array)
{
    ENTER_INITIALIZED();
    return array_delete((struct array *)array, HANDLE_ARRAY);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                unsigned int levels)
{
    ENTER_INITIALIZED();
    return array_new((void **)array, descriptor, levels, HANDLE_MIPMAPPED_ARRAY);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    ENTER_INITIALIZED();
    return array_delete((struct array *)array, HANDLE_MIPMAPPED_ARRAY);
}
