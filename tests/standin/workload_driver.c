/* Backend: the driver API, linked with libcuda.so.1. Its copies are in workload_driver_copies.c. */
#include <pthread.h>

#include "workload.h"
#include "workload_driver.h"

/* ---- contexts ---------------------------------------------------------- */

#define MAX_DEVICES 16

static bool create_contexts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[MAX_DEVICES]; /* NULL until used; under `lock` */

/* A context that cuCtxCreate makes is pushed on the calling thread's stack;
 * popping it lets every thread select contexts in the same way. */
static int make_context(CUcontext *context, int device)
{
    if (!create_contexts)
        return cuDevicePrimaryCtxRetain(context, device);
    int error = cuCtxCreate_v2(context, 0, device);
    return error ? error : cuCtxPopCurrent_v2(NULL);
}

int driver_context(int device, CUcontext *context)
{
    if (device < 0 || device >= MAX_DEVICES)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    int error = contexts[device] ? CUDA_SUCCESS : make_context(&contexts[device], device);
    *context = contexts[device];
    pthread_mutex_unlock(&lock);
    return error;
}

static int driver_set_device(int device)
{
    CUcontext context;
    int error = driver_context(device, &context);
    return error ? error : cuCtxSetCurrent(context);
}

static int checkpoint(const char *step, int pid)
{
    switch (*step) {
    case 'l':
        return cuCheckpointProcessLock(pid, NULL);
    case 'c':
        return cuCheckpointProcessCheckpoint(pid, NULL);
    case 'r':
        return cuCheckpointProcessRestore(pid, NULL);
    default:
        return cuCheckpointProcessUnlock(pid, NULL);
    }
}

/* References of the primary contexts beyond that of `contexts`; under `lock`. */
static unsigned int retained[MAX_DEVICES];

static int retain_primary(int device)
{
    CUcontext context;
    int error = cuDevicePrimaryCtxRetain(&context, device);
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    retained[device]++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int release_primary(int device, bool *ended)
{
    int error = cuDevicePrimaryCtxRelease_v2(device);
    *ended = false;
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    if (retained[device]) {
        retained[device]--;
    } else if (!create_contexts) {
        *ended = true;
        contexts[device] = NULL;
    }
    pthread_mutex_unlock(&lock);
    return *ended ? driver_set_device(device) : 0;
}

static int driver_enter_thread(void)
{
    return driver_set_device(0);
}

static int driver_start(bool create)
{
    create_contexts = create;
    int error = cuInit(0);
    return error ? error : driver_set_device(0);
}

static int driver_reset(void)
{
    int device;
    int error = cuCtxGetDevice(&device);
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    error =
        create_contexts ? cuCtxDestroy_v2(contexts[device]) : cuDevicePrimaryCtxReset_v2(device);
    if (!error) {
        contexts[device] = NULL;
        if (!create_contexts)
            retained[device] = 0;
    }
    pthread_mutex_unlock(&lock);
    return error ? error : driver_set_device(device);
}

/* ---- modules ----------------------------------------------------------- */

static int module_global(void *module, const char *name, bool managed, uint64_t *address,
                         size_t *bytes)
{
    (void)managed; /* one function for both */
    return cuModuleGetGlobal_v2((CUdeviceptr *)address, bytes, module, name);
}

static int library_global(void *library, const char *name, bool managed, uint64_t *address,
                          size_t *bytes)
{
    return managed ? cuLibraryGetManaged((CUdeviceptr *)address, bytes, library, name)
                   : cuLibraryGetGlobal((CUdeviceptr *)address, bytes, library, name);
}

static int library_load(void **library, const char *image)
{
    return cuLibraryLoadData((CUlibrary *)library, image, NULL, NULL, 0, NULL, NULL, 0);
}

static int library_function(const void **kernel, void *library, const char *name)
{
    CUkernel found;
    int error = cuLibraryGetKernel(&found, library, name);
    return error ? error : cuKernelGetFunction((CUfunction *)kernel, found);
}

static const struct module_method modules[] = {
    { "module", (void *)cuModuleLoadData, (void *)cuModuleGetFunction, (void *)cuModuleUnload,
      module_global },
    { "library", library_load, (void *)cuLibraryGetKernel, (void *)cuLibraryUnload,
      library_global },
    { "function", library_load, library_function, (void *)cuLibraryUnload, library_global },
    { .name = NULL },
};

/* Loaded on the first device that wants them, and once only. */
static const void *builtins[BUILTIN_KERNELS];
static struct {
    CUmodule module;
    int device;
    void *context;
} builtin_module;

static int builtin(int number, const void **kernel)
{
    CUmodule module;
    int error = 0;
    if (!builtins[number]) {
        error = cuModuleLoadData(&module, builtin_image);
        for (int i = 0; !error && i < BUILTIN_KERNELS; i++)
            error = cuModuleGetFunction((CUfunction *)&builtins[i], module, builtin_kernels[i]);
        builtin_module = (__typeof__(builtin_module)){ module, thread_device, thread_context };
    }
    *kernel = builtins[number];
    return error;
}

static int handle(const void *kernel, const void **result)
{
    *result = kernel;
    return 0;
}

static void forget(void)
{
    for (int i = 0; i < BUILTIN_KERNELS; i++)
        builtins[i] = NULL;
}

/* ---- launches ---------------------------------------------------------- */

static CUlaunchConfig config_of(const struct launch *l)
{
    return (CUlaunchConfig){
        .gridDimX = l->grid[0],
        .gridDimY = l->grid[1],
        .gridDimZ = l->grid[2],
        .blockDimX = l->block[0],
        .blockDimY = l->block[1],
        .blockDimZ = l->block[2],
        .hStream = l->stream,
    };
}

#define SHAPE(l)                                                                      \
    (CUfunction)(l)->kernel, (l)->grid[0], (l)->grid[1], (l)->grid[2], (l)->block[0], \
        (l)->block[1], (l)->block[2]

#define DEFINE_LAUNCHES(suffix)                                                      \
    static int launch##suffix(const struct launch *l)                                \
    {                                                                                \
        return cuLaunchKernel##suffix(SHAPE(l), 0, l->stream, NULL, NULL);           \
    }                                                                                \
    static int launch_ex##suffix(const struct launch *l)                             \
    {                                                                                \
        CUlaunchConfig config = config_of(l);                                        \
        return cuLaunchKernelEx##suffix(&config, (CUfunction)l->kernel, NULL, NULL); \
    }                                                                                \
    static int launch_cooperative##suffix(const struct launch *l)                    \
    {                                                                                \
        return cuLaunchCooperativeKernel##suffix(SHAPE(l), 0, l->stream, NULL);      \
    }

DEFINE_LAUNCHES()
DEFINE_LAUNCHES(_ptsz)

static const struct launch_method launches[] = {
    { "kernel", "cuLaunchKernel", launch },
    { "ex", "cuLaunchKernelEx", launch_ex },
    { "coop", "cuLaunchCooperativeKernel", launch_cooperative },
    { "ptsz", "cuLaunchKernel_ptsz", launch_ptsz },
    { "ex-ptsz", "cuLaunchKernelEx_ptsz", launch_ex_ptsz },
    { "coop-ptsz", "cuLaunchCooperativeKernel_ptsz", launch_cooperative_ptsz },
    { .name = NULL },
};

/* ---- streams ----------------------------------------------------------- */

static int stream_create(void **stream)
{
    return cuStreamCreate((CUstream *)stream, 0);
}

static int event_create(void **event)
{
    return cuEventCreate((CUevent *)event, 0);
}

/* ---- memory ------------------------------------------------------------ */

#define ELEMENT_BYTES 4

static int pitched(void **address, size_t *pitch, size_t width, size_t height)
{
    return cuMemAllocPitch_v2((CUdeviceptr *)address, pitch, width, height, ELEMENT_BYTES);
}

static int pitched_3d(void **address, size_t *pitch, size_t width, size_t height, size_t depth)
{
    return pitched(address, pitch, width, height * depth);
}

static int pinned_for_copy(void **address, size_t bytes)
{
    return cuMemHostAlloc(address, bytes, 0);
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

static int mipmap(void **result, const struct array_shape *shape)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = describe(shape);
    return cuMipmappedArrayCreate((CUmipmappedArray *)result, &descriptor, shape->levels);
}

static int builtin_variable(int number, void **address, int *device, void **context)
{
    size_t bytes;
    const void *kernel;
    int error = builtin(0, &kernel);
    if (error)
        return error;
    *device = builtin_module.device;
    *context = builtin_module.context;
    return cuModuleGetGlobal_v2((CUdeviceptr *)address, &bytes, builtin_module.module,
                                builtin_variables[number].name);
}

/* ---- the table --------------------------------------------------------- */

struct api api = { .name = "driver",
                   .start = driver_start,
                   .enter_thread = driver_enter_thread,
                   .modules = modules,
                   .launches = launches,
                   .copies = driver_copies,
                   .sets = driver_sets,
                   .builtin = builtin,
                   .handle = handle,
                   .forget = forget,
                   .pitched_3d = pitched_3d,
                   .array = array,
                   .mipmap = mipmap,
                   .builtin_variable = builtin_variable,
                   .context_create = (void *)cuCtxCreate_v2,
                   .context_destroy = (void *)cuCtxDestroy_v2,
                   .context_push = (void *)cuCtxPushCurrent_v2,
                   .context_pop = (void *)cuCtxPopCurrent_v2,
                   .context_set = (void *)cuCtxSetCurrent,
                   .checkpoint = checkpoint,
                   .retain_primary = retain_primary,
                   .release_primary = release_primary,
#define FUNCTION(name, arguments, runtime, driver) .name = (void *)driver,
                   API_FUNCTIONS(FUNCTION, FUNCTION)
#undef FUNCTION
};
