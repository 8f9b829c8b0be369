/* The driver backend's memory that belongs to a context, and its contexts. */
#include "workload_driver.h"
#include "workload_memory_api.h"

#define ELEMENT_BYTES 4

static int pitched(void **address, size_t *pitch, size_t width, size_t height)
{
    return cuMemAllocPitch_v2((CUdeviceptr *)address, pitch, width, height, ELEMENT_BYTES);
}

static int pitched_3d(void **address, size_t *pitch, size_t width, size_t height, size_t depth)
{
    return pitched(address, pitch, width, height * depth);
}

static int managed(void **address, size_t bytes)
{
    return cuMemAllocManaged((CUdeviceptr *)address, bytes, CU_MEM_ATTACH_GLOBAL);
}

static int host_alloc(void **address, size_t bytes)
{
    return cuMemHostAlloc(address, bytes, 0);
}

static int make_known(void *address, size_t bytes)
{
    return cuMemHostRegister_v2(address, bytes, 0);
}

static CUarray_format format_of(const struct array_shape *shape)
{
    switch (shape->bits) {
    case 0:
        return (CUarray_format)shape->format;
    case 8:
        return CU_AD_FORMAT_UNSIGNED_INT8;
    case 16:
        return CU_AD_FORMAT_UNSIGNED_INT16;
    case 32:
        return CU_AD_FORMAT_UNSIGNED_INT32;
    default:
        return 0;
    }
}

static CUDA_ARRAY3D_DESCRIPTOR describe(const struct array_shape *shape)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){ .Width = shape->width,
                                      .Height = shape->height,
                                      .Depth = shape->depth,
                                      .Format = format_of(shape),
                                      .NumChannels = shape->channels,
                                      .Flags = shape->flags };
}

static int array(void **result, const struct array_shape *shape)
{
    if (shape->depth || shape->flags) {
        CUDA_ARRAY3D_DESCRIPTOR descriptor = describe(shape);
        return cuArray3DCreate_v2((CUarray *)result, &descriptor);
    }
    CUDA_ARRAY_DESCRIPTOR descriptor = { .Width = shape->width,
                                         .Height = shape->height,
                                         .Format = format_of(shape),
                                         .NumChannels = shape->channels };
    return cuArrayCreate_v2((CUarray *)result, &descriptor);
}

static int array_free(void *array)
{
    return cuArrayDestroy(array);
}

static int mipmap(void **result, const struct array_shape *shape)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = describe(shape);
    return cuMipmappedArrayCreate((CUmipmappedArray *)result, &descriptor, shape->levels);
}

static int mipmap_free(void *array)
{
    return cuMipmappedArrayDestroy(array);
}

static int builtin_variable(int number, void **address, int *device, void **context)
{
    size_t bytes;
    const void *kernel;
    int error = driver_work.builtin(0, &kernel);
    if (error)
        return error;
    CUmodule module = driver_builtin_module(device, context);
    return cuModuleGetGlobal_v2((CUdeviceptr *)address, &bytes, module,
                                builtin_variables[number].name);
}

/* ---- contexts ---------------------------------------------------------- */

static int context_create(void **context, int device)
{
    return cuCtxCreate_v2((CUcontext *)context, 0, device);
}

static int context_destroy(void *context)
{
    return cuCtxDestroy_v2(context);
}

static int context_push(void *context)
{
    return cuCtxPushCurrent_v2(context);
}

static int context_pop(void)
{
    return cuCtxPopCurrent_v2(NULL);
}

static int context_set(void *context)
{
    return cuCtxSetCurrent(context);
}

static const struct context_api contexts = {
    .create = context_create,
    .destroy = context_destroy,
    .push = context_push,
    .pop = context_pop,
    .set = context_set,
    .retain_primary = driver_retain_primary,
    .release_primary = driver_release_primary,
};

const struct memory_api driver_memory = {
    .pitched = pitched,
    .pitched_3d = pitched_3d,
    .managed = managed,
    .pinned = cuMemAllocHost_v2,
    .host_alloc = host_alloc,
    .pinned_free = cuMemFreeHost,
    .make_known = make_known,
    .forget_known = cuMemHostUnregister,
    .array = array,
    .array_free = array_free,
    .mipmap = mipmap,
    .mipmap_free = mipmap_free,
    .builtin_variable = builtin_variable,
    .contexts = &contexts,
};
