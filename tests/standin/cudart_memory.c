/* Stand-in runtime: rows, arrays, managed memory, and registered host memory. Plain memory is in
 * cudart.c. */
#include <stdbool.h>

#include "cudart_internal.h"

#define PITCH_ELEMENT_BYTES 4

static cudaError_t malloc_rows(void **address, size_t *pitch, size_t width, size_t height)
{
    if (!address || !pitch)
        return cudaErrorInvalidValue;
    if (width == 0 || height == 0) {
        *address = NULL;
        *pitch = 0;
        return cudaSuccess;
    }
    CUdeviceptr allocated;
    cudaError_t error =
        driver.mem_alloc_pitch(&allocated, pitch, width, height, PITCH_ELEMENT_BYTES);
    if (!error)
        *address = (void *)allocated;
    return error;
}

static cudaError_t malloc_layers(struct cudaPitchedPtr *rows, struct cudaExtent extent)
{
    if (!rows)
        return cudaErrorInvalidValue;
    rows->xsize = extent.width;
    rows->ysize = extent.height;
    return malloc_rows(&rows->ptr, &rows->pitch, extent.width, extent.height * extent.depth);
}

static cudaError_t malloc_managed(void **address, size_t bytes, unsigned int flags)
{
    CUdeviceptr allocated;
    if (!address)
        return cudaErrorInvalidValue;
    cudaError_t error = driver.mem_alloc_managed(&allocated, bytes, flags);
    if (!error)
        *address = (void *)allocated;
    return error;
}

static CUarray_format format_of(const struct cudaChannelFormatDesc *channels)
{
    static const struct {
        int bits;
        CUarray_format formats[3]; /* by the kind of channel */
    } rows[] = {
        { 8, { CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT8, 0 } },
        { 16, { CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_HALF } },
        { 32, { CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_FLOAT } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].bits == channels->x && (unsigned int)channels->f <= cudaChannelFormatKindFloat)
            return rows[i].formats[channels->f];
    return 0;
}

static cudaError_t describe(CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                            const struct cudaChannelFormatDesc *channels, struct cudaExtent extent,
                            unsigned int flags)
{
    if (!channels)
        return cudaErrorInvalidValue;
    const int bits[] = { channels->x, channels->y, channels->z, channels->w };
    unsigned int count = 0;
    while (count < 4 && bits[count] && bits[count] == bits[0])
        count++;
    *descriptor = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = extent.width,
                                             .Height = extent.height,
                                             .Depth = extent.depth,
                                             .Format = format_of(channels),
                                             .NumChannels = count,
                                             .Flags = flags };
    return descriptor->Format ? cudaSuccess : cudaErrorInvalidChannelDescriptor;
}

static cudaError_t malloc_array(cudaArray_t *array, const struct cudaChannelFormatDesc *channels,
                                struct cudaExtent extent, unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    cudaError_t error = describe(&descriptor, channels, extent, flags);
    return error ? error : driver.array_create((CUarray *)array, &descriptor);
}

static cudaError_t malloc_mipmap(cudaMipmappedArray_t *array,
                                 const struct cudaChannelFormatDesc *channels,
                                 struct cudaExtent extent, unsigned int levels, unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    cudaError_t error = describe(&descriptor, channels, extent, flags);
    return error ? error : driver.mipmap_create((CUmipmappedArray *)array, &descriptor, levels);
}

DEFINE(cudaMallocPitch, (void **address, size_t *pitch, size_t width, size_t height),
       malloc_rows(address, pitch, width, height))
DEFINE(cudaMalloc3D, (struct cudaPitchedPtr * rows, struct cudaExtent extent),
       malloc_layers(rows, extent))
DEFINE(cudaMallocManaged, (void **address, size_t bytes, unsigned int flags),
       malloc_managed(address, bytes, flags))

DEFINE(cudaHostRegister, (void *address, size_t bytes, unsigned int flags),
       driver.host_register(address, bytes, flags))
DEFINE(cudaHostUnregister, (void *address), driver.host_unregister(address))

DEFINE(cudaMallocArray,
       (cudaArray_t * array, const struct cudaChannelFormatDesc *channels, size_t width,
        size_t height, unsigned int flags),
       malloc_array(array, channels, (struct cudaExtent){ width, height, 0 }, flags))
DEFINE(cudaMalloc3DArray,
       (cudaArray_t * array, const struct cudaChannelFormatDesc *channels, struct cudaExtent extent,
        unsigned int flags),
       malloc_array(array, channels, extent, flags))
DEFINE(cudaMallocMipmappedArray,
       (cudaMipmappedArray_t * array, const struct cudaChannelFormatDesc *channels,
        struct cudaExtent extent, unsigned int levels, unsigned int flags),
       malloc_mipmap(array, channels, extent, levels, flags))
DEFINE(cudaFreeArray, (cudaArray_t array),
       array ? driver.array_destroy((CUarray)array) : cudaSuccess)
DEFINE(cudaFreeMipmappedArray, (cudaMipmappedArray_t array),
       array ? driver.mipmap_destroy((CUmipmappedArray)array) : cudaSuccess)
