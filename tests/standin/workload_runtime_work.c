/* The runtime backends' kernels, streams and graphs. */
#include "cuda_abi.h"
#include "workload_runtime.h"

/*
 * What nvcc makes of the kernels of a program, as symbols of the program: for
 * each a host function under the kernel's own mangled name, whose address is
 * registered and launched, and the stub that it calls to launch. Of the last
 * two kernels the stub is registered instead: a name that a tracer must undress.
 *
 * noipa: the compiler must not find that they are all the same.
 */
#define HOST_FUNCTION(function, symbol)                     \
    static void function(void) __asm__(symbol);             \
    __attribute__((noipa, used)) static void function(void) \
    {                                                       \
    }

HOST_FUNCTION(vec_add, "_Z6vecAddPKfS0_Pfi")
HOST_FUNCTION(vec_add_stub, "_Z32__device_stub__Z6vecAddPKfS0_PfiPKfS0_Pfi")
HOST_FUNCTION(elementwise, "_ZN2at6native29vectorized_elementwise_kernelILi4E"
                           "NS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_")
HOST_FUNCTION(gemm_stub,
              "_Z130__device_stub__sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_"
              "warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublasPf")
HOST_FUNCTION(fused_add_stub, "_Z37__device_stub__triton_poi_fused_add_0PfS_S_i")

static void (*const host_functions[BUILTIN_KERNELS])(void) = {
    vec_add,
    elementwise,
    gemm_stub,
    fused_add_stub,
};

/* A compiled program does this before main; nothing of it reaches the driver,
 * so that it can as well be done when it is needed. */
static int builtin(int number, const void **kernel)
{
    static struct fat_binary_wrapper fat_binary = { 0x466243b1, 1, builtin_image, NULL };
    static void **handle;
    if (!handle) {
        handle = runtime.__cudaRegisterFatBinary(&fat_binary);
        for (int i = 0; i < BUILTIN_KERNELS; i++)
            runtime.__cudaRegisterFunction(handle, (const char *)host_functions[i],
                                           (char *)builtin_kernels[i], builtin_kernels[i], -1, NULL,
                                           NULL, NULL, NULL, NULL);
        for (int i = 0; i < BUILTIN_VARIABLES; i++)
            runtime.__cudaRegisterVar(handle, (char *)runtime_host_variables[i],
                                      (char *)builtin_variables[i].name, builtin_variables[i].name,
                                      0, builtin_variables[i].bytes, 0, 0);
        runtime.__cudaRegisterFatBinaryEnd(handle);
    }
    *kernel = (const void *)host_functions[number];
    return 0;
}

static bool is_host_function(const void *kernel)
{
    for (int i = 0; i < BUILTIN_KERNELS; i++)
        if (kernel == (const void *)host_functions[i])
            return true;
    return false;
}

static int handle_of(const void *kernel, const void **result)
{
    *result = kernel;
    return is_host_function(kernel) ? runtime.__cudaGetKernel((cudaKernel_t *)result, kernel) : 0;
}

static void forget(void)
{
}

static int library_load(void **library, const char *image)
{
    return runtime.cudaLibraryLoadData((cudaLibrary_t *)library, image, NULL, NULL, 0, NULL, NULL,
                                       0);
}

static int library_kernel(const void **kernel, void *library, const char *name)
{
    return runtime.cudaLibraryGetKernel((cudaKernel_t *)kernel, library, name);
}

static int library_global(void *library, const char *name, bool managed, uint64_t *address,
                          size_t *bytes)
{
    return managed ? runtime.cudaLibraryGetManaged((void **)address, bytes, library, name)
                   : runtime.cudaLibraryGetGlobal((void **)address, bytes, library, name);
}

static int library_unload(void *library)
{
    return runtime.cudaLibraryUnload(library);
}

static const struct module_method modules[] = {
    { "library", library_load, library_kernel, library_unload, library_global },
    { .name = NULL },
};

/* ---- launches ---------------------------------------------------------- */

static dim3 dim3_of(const unsigned int size[3])
{
    return (dim3){ size[0], size[1], size[2] };
}

#define SHAPE(l) dim3_of((l)->grid), dim3_of((l)->block), NULL, 0, (l)->stream

/* `launch_as_nvcc` is what a kernel<<<>>> of CUDA 12.4 or later compiles to. */
#define DEFINE_LAUNCHES(suffix)                                                                    \
    static int launch##suffix(const struct launch *l)                                              \
    {                                                                                              \
        return runtime.cudaLaunchKernel##suffix(l->kernel, SHAPE(l));                              \
    }                                                                                              \
    static int launch_ex##suffix(const struct launch *l)                                           \
    {                                                                                              \
        cudaLaunchConfig_t config = { .gridDim = dim3_of(l->grid),                                 \
                                      .blockDim = dim3_of(l->block),                               \
                                      .stream = l->stream };                                       \
        return runtime.cudaLaunchKernelExC##suffix(&config, l->kernel, NULL);                      \
    }                                                                                              \
    static int launch_cooperative##suffix(const struct launch *l)                                  \
    {                                                                                              \
        return runtime.cudaLaunchCooperativeKernel##suffix(l->kernel, SHAPE(l));                   \
    }                                                                                              \
    static int launch_as_nvcc##suffix(const struct launch *l)                                      \
    {                                                                                              \
        const void *kernel;                                                                        \
        int error = handle_of(l->kernel, &kernel);                                                 \
        return error ? error : runtime.__cudaLaunchKernel##suffix((cudaKernel_t)kernel, SHAPE(l)); \
    }

DEFINE_LAUNCHES()
DEFINE_LAUNCHES(_ptsz)

static const struct launch_method launches[] = {
    { "kernel", "cudaLaunchKernel", launch },
    { "ex", "cudaLaunchKernelExC", launch_ex },
    { "coop", "cudaLaunchCooperativeKernel", launch_cooperative },
    { "nvcc", "__cudaLaunchKernel", launch_as_nvcc },
    { "ptsz", "cudaLaunchKernel_ptsz", launch_ptsz },
    { "ex-ptsz", "cudaLaunchKernelExC_ptsz", launch_ex_ptsz },
    { "coop-ptsz", "cudaLaunchCooperativeKernel_ptsz", launch_cooperative_ptsz },
    { "nvcc-ptsz", "__cudaLaunchKernel_ptsz", launch_as_nvcc_ptsz },
    { .name = NULL },
};

/* ---- streams and graphs ------------------------------------------------ */

static int pinned_alloc(void **address, size_t bytes)
{
    return runtime.cudaMallocHost(address, bytes);
}

static int pinned_free(void *address)
{
    return runtime.cudaFreeHost(address);
}

static int stream_create(void **stream)
{
    return runtime.cudaStreamCreate((cudaStream_t *)stream);
}

static int stream_destroy(void *stream)
{
    return runtime.cudaStreamDestroy(stream);
}

static int stream_synchronize(void *stream)
{
    return runtime.cudaStreamSynchronize(stream);
}

static int event_create(void **event)
{
    return runtime.cudaEventCreate((cudaEvent_t *)event);
}

static int event_destroy(void *event)
{
    return runtime.cudaEventDestroy(event);
}

static int event_record(void *event, void *stream)
{
    return runtime.cudaEventRecord(event, stream);
}

static int stream_wait(void *stream, void *event)
{
    return runtime.cudaStreamWaitEvent(stream, event, 0);
}

static int capture_begin(void *stream)
{
    return runtime.cudaStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static int capture_end(void *stream, void **graph)
{
    return runtime.cudaStreamEndCapture(stream, (cudaGraph_t *)graph);
}

static int graph_nodes(void *graph, size_t *count)
{
    return runtime.cudaGraphGetNodes(graph, NULL, count);
}

static int graph_instantiate(void **exec, void *graph)
{
    return runtime.cudaGraphInstantiate((cudaGraphExec_t *)exec, graph, 0);
}

static int graph_launch(void *exec, void *stream)
{
    return runtime.cudaGraphLaunch(exec, stream);
}

static int graph_destroy(void *graph, void *exec)
{
    int error = runtime.cudaGraphExecDestroy(exec);
    return error ? error : runtime.cudaGraphDestroy(graph);
}

const struct work_api runtime_work = {
    .modules = modules,
    .launches = launches,
    .copies = runtime_copies,
    .sets = runtime_sets,
    .builtin = builtin,
    .handle = handle_of,
    .forget = forget,
    .pinned_alloc = pinned_alloc,
    .pinned_free = pinned_free,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .stream_wait = stream_wait,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_nodes = graph_nodes,
    .graph_instantiate = graph_instantiate,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
};
