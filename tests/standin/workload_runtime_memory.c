/* The runtime backends' memory that belongs to a context. */
#include "cuda_abi.h"
#include "workload_memory_api.h"
#include "workload_runtime.h"

static int pitched(void **address, size_t *pitch, size_t width, size_t height)
{
    return runtime.cudaMallocPitch(address, pitch, width, height);
}

static int pitched_3d(void **address, size_t *pitch, size_t width, size_t height, size_t depth)
{
    struct cudaPitchedPtr rows = { 0 };
    int error = runtime.cudaMalloc3D(&rows, (struct cudaExtent){ width, height, depth });
    *address = rows.ptr;
    *pitch = rows.pitch;
    return error;
}

static int managed(void **address, size_t bytes)
{
    return runtime.cudaMallocManaged(address, bytes, CU_MEM_ATTACH_GLOBAL);
}

static int pinned(void **address, size_t bytes)
{
    return runtime.cudaMallocHost(address, bytes);
}

static int host_alloc(void **address, size_t bytes)
{
    return runtime.cudaHostAlloc(address, bytes, 0);
}

static int pinned_free(void *address)
{
    return runtime.cudaFreeHost(address);
}

static int make_known(void *address, size_t bytes)
{
    return runtime.cudaHostRegister(address, bytes, 0);
}

static int forget_known(void *address)
{
    return runtime.cudaHostUnregister(address);
}

/* The formats that a channel description can say; others are the driver's. */
static struct cudaChannelFormatDesc channels_of(const struct array_shape *shape)
{
    struct cudaChannelFormatDesc result = { .f = cudaChannelFormatKindUnsigned };
    int bits = (int)shape->bits;
    switch (shape->format) {
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT32:
        bits = shape->format == CU_AD_FORMAT_SIGNED_INT8 ? 8 : 32;
        result.f = cudaChannelFormatKindSigned;
        break;
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_FLOAT:
        bits = shape->format == CU_AD_FORMAT_HALF ? 16 : 32;
        result.f = cudaChannelFormatKindFloat;
        break;
    }
    int *const channels[] = { &result.x, &result.y, &result.z, &result.w };
    for (unsigned int i = 0; i < shape->channels && i < 4; i++)
        *channels[i] = bits;
    return result;
}

static int array(void **result, const struct array_shape *shape)
{
    struct cudaChannelFormatDesc channels = channels_of(shape);
    if (!shape->depth)
        return runtime.cudaMallocArray((cudaArray_t *)result, &channels, shape->width,
                                       shape->height, shape->flags);
    struct cudaExtent extent = { shape->width, shape->height, shape->depth };
    return runtime.cudaMalloc3DArray((cudaArray_t *)result, &channels, extent, shape->flags);
}

static int array_free(void *array)
{
    return runtime.cudaFreeArray(array);
}

static int mipmap(void **result, const struct array_shape *shape)
{
    struct cudaChannelFormatDesc channels = channels_of(shape);
    struct cudaExtent extent = { shape->width, shape->height, shape->depth };
    return runtime.cudaMallocMipmappedArray((cudaMipmappedArray_t *)result, &channels, extent,
                                            shape->levels, shape->flags);
}

static int mipmap_free(void *array)
{
    return runtime.cudaFreeMipmappedArray(array);
}

const void *const runtime_host_variables[BUILTIN_VARIABLES] = {
    (const char[]){ "standin_counter" },
    (const char[]){ "standin_table" },
};

/* Registered with the kernels, at the first use of one. */
static int builtin_variable(int number, void **address, int *device, void **context)
{
    (void)device, (void)context;
    const void *kernel;
    int error = runtime_work.builtin(0, &kernel);
    return error ? error : runtime.cudaGetSymbolAddress(address, runtime_host_variables[number]);
}

const struct memory_api runtime_memory = {
    .pitched = pitched,
    .pitched_3d = pitched_3d,
    .managed = managed,
    .pinned = pinned,
    .host_alloc = host_alloc,
    .pinned_free = pinned_free,
    .make_known = make_known,
    .forget_known = forget_known,
    .array = array,
    .array_free = array_free,
    .mipmap = mipmap,
    .mipmap_free = mipmap_free,
    .builtin_variable = builtin_variable,
};
