/*
 * Stand-in runtime: the kernels of a program, and launching them.
 *
 * Nothing of a program's image is loaded before a kernel of it is wanted, as
 * CUDA 12 does by default. The driver gets the CUkernel.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "cudart_internal.h"

struct fat_binary {
    const void *image;
    CUlibrary library; /* NULL until loaded; under `lock` */
};

/* Published once and never removed, so that launches walk the list unlocked. */
struct host_function {
    struct host_function *next;
    const void *address; /* that a launch names it by */
    const char *name;
    struct fat_binary *binary;
    _Atomic(CUkernel) kernel; /* NULL until first wanted */
};

static _Atomic(struct host_function *) host_functions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory) {
        fputs("stand-in CUDA: no host memory for a kernel\n", stderr);
        abort();
    }
    return memory;
}

void **__cudaRegisterFatBinary(void *fat_binary)
{
    const struct fat_binary_wrapper *wrapper = fat_binary;
    struct fat_binary *binary = allocate(sizeof *binary);
    binary->image = wrapper->data;
    return (void **)binary;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function,
                            const char *device_name, int thread_limit, void *tid, void *bid,
                            dim3 *block, dim3 *grid, int *warp_size)
{
    (void)device_function, (void)thread_limit, (void)tid, (void)bid;
    (void)block, (void)grid, (void)warp_size;
    struct host_function *function = allocate(sizeof *function);
    function->address = host_function;
    function->name = device_name;
    function->binary = (struct fat_binary *)handle;
    pthread_mutex_lock(&lock);
    function->next = atomic_load(&host_functions);
    atomic_store(&host_functions, function);
    pthread_mutex_unlock(&lock);
}

cudaError_t runtime_library(void **handle, CUlibrary *library)
{
    struct fat_binary *binary = (struct fat_binary *)handle;
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&lock);
    if (!binary->library)
        error = driver.library_load(&binary->library, binary->image, NULL, NULL, 0, NULL, NULL, 0);
    *library = binary->library;
    pthread_mutex_unlock(&lock);
    return error;
}

static cudaError_t load_kernel(struct host_function *function)
{
    CUlibrary library;
    CUkernel kernel = NULL;
    cudaError_t error = runtime_library((void **)function->binary, &library);
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&function->kernel)) {
        error = driver.library_kernel(&kernel, library, function->name);
        if (!error)
            atomic_store(&function->kernel, kernel);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static cudaError_t find_kernel(const void *address, CUkernel *kernel)
{
    for (struct host_function *f = atomic_load(&host_functions); f; f = f->next) {
        if (f->address != address)
            continue;
        cudaError_t error = atomic_load(&f->kernel) ? cudaSuccess : load_kernel(f);
        *kernel = atomic_load(&f->kernel);
        return error;
    }
    return cudaErrorInvalidDeviceFunction;
}

/* A pointer that is not a registered host function must be a cudaKernel_t. */
static CUfunction function_of(const void *function, cudaError_t *error)
{
    CUkernel kernel = (CUkernel)function;
    *error = find_kernel(function, &kernel);
    if (*error == cudaErrorInvalidDeviceFunction)
        *error = cudaSuccess;
    return (CUfunction)kernel;
}

static cudaError_t launch(const struct stream_driver *streams, const void *function, dim3 grid,
                          dim3 block, void **params, size_t shared_bytes, cudaStream_t stream)
{
    cudaError_t error;
    CUfunction kernel = function_of(function, &error);
    if (shared_bytes > UINT32_MAX)
        return cudaErrorInvalidValue;
    return error ? error
                 : streams->launch(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                   (unsigned int)shared_bytes, stream, params, NULL);
}

static cudaError_t launch_cooperative(const struct stream_driver *streams, const void *function,
                                      dim3 grid, dim3 block, void **params, size_t shared_bytes,
                                      cudaStream_t stream)
{
    cudaError_t error;
    CUfunction kernel = function_of(function, &error);
    if (shared_bytes > UINT32_MAX)
        return cudaErrorInvalidValue;
    return error ? error
                 : streams->launch_cooperative(kernel, grid.x, grid.y, grid.z, block.x, block.y,
                                               block.z, (unsigned int)shared_bytes, stream, params);
}

static cudaError_t launch_ex(const struct stream_driver *streams, const cudaLaunchConfig_t *config,
                             const void *function, void **params)
{
    if (!config || config->dynamicSmemBytes > UINT32_MAX)
        return cudaErrorInvalidValue;
    cudaError_t error;
    CUfunction kernel = function_of(function, &error);
    CUlaunchConfig driver_config = {
        .gridDimX = config->gridDim.x,
        .gridDimY = config->gridDim.y,
        .gridDimZ = config->gridDim.z,
        .blockDimX = config->blockDim.x,
        .blockDimY = config->blockDim.y,
        .blockDimZ = config->blockDim.z,
        .sharedMemBytes = (unsigned int)config->dynamicSmemBytes,
        .hStream = config->stream,
        .attrs = (CUlaunchAttribute *)config->attrs,
        .numAttrs = config->numAttrs,
    };
    return error ? error : streams->launch_ex(&driver_config, kernel, params, NULL);
}

DEFINE(__cudaGetKernel, (cudaKernel_t * kernel, const void *host_function),
       kernel ? find_kernel(host_function, kernel) : cudaErrorInvalidValue)

DEFINE_TWINS(cudaLaunchKernel, _ptsz,
             (const void *function, dim3 grid, dim3 block, void **params, size_t shared_bytes,
              cudaStream_t stream),
             launch(streams, function, grid, block, params, shared_bytes, stream))

DEFINE_TWINS(cudaLaunchCooperativeKernel, _ptsz,
             (const void *function, dim3 grid, dim3 block, void **params, size_t shared_bytes,
              cudaStream_t stream),
             launch_cooperative(streams, function, grid, block, params, shared_bytes, stream))

DEFINE_TWINS(cudaLaunchKernelExC, _ptsz,
             (const cudaLaunchConfig_t *config, const void *function, void **params),
             launch_ex(streams, config, function, params))

/*
 * These hand all their arguments on as they came, by jumping; the bytes are
 * those of CUDA 12.4 and later. A probe on each sees one launch twice. Not in C:
 * a compiler, even for a naked function, first stores the arguments.
 */
#ifdef CUDART_STATIC
#define VISIBILITY(symbol) ".hidden " symbol "\n"
#else
#define VISIBILITY(symbol)
#endif

#define DEFINE_JUMP(symbol, target)                                                               \
    __asm__(".text\n"                                                                             \
            ".globl " symbol "\n" VISIBILITY(symbol) ".type " symbol ", @function\n" symbol ":\n" \
                                                     "    push %rbp\n"                            \
                                                     "    mov %rsp, %rbp\n"                       \
                                                     "    pop %rbp\n"                             \
                                                     "    jmp " target "@PLT\n"                   \
                                                     ".size " symbol ", . - " symbol "\n")

DEFINE_JUMP("__cudaLaunchKernel", "cudaLaunchKernel");
DEFINE_JUMP("__cudaLaunchKernel_ptsz", "cudaLaunchKernel_ptsz");

DEFINE(cudaLibraryLoadData,
       (cudaLibrary_t * library, const void *code, cudaJitOption *jit_options, void **jit_values,
        unsigned int jit_count, cudaLibraryOption *options, void **values, unsigned int count),
       driver.library_load(library, code, jit_options, jit_values, jit_count, options, values,
                           count))
DEFINE(cudaLibraryUnload, (cudaLibrary_t library), driver.library_unload(library))
DEFINE(cudaLibraryGetKernel, (cudaKernel_t * kernel, cudaLibrary_t library, const char *name),
       driver.library_kernel(kernel, library, name))
