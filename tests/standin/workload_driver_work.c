/* The driver backend's kernels, streams and graphs. */
#include "workload.h"
#include "workload_driver.h"

/* ---- modules ----------------------------------------------------------- */

static int module_load(void **module, const char *image)
{
    return cuModuleLoadData((CUmodule *)module, image);
}

static int module_kernel(const void **kernel, void *module, const char *name)
{
    return cuModuleGetFunction((CUfunction *)kernel, module, name);
}

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

static int module_unload(void *module)
{
    return cuModuleUnload(module);
}

static int library_load(void **library, const char *image)
{
    return cuLibraryLoadData((CUlibrary *)library, image, NULL, NULL, 0, NULL, NULL, 0);
}

static int library_kernel(const void **kernel, void *library, const char *name)
{
    return cuLibraryGetKernel((CUkernel *)kernel, library, name);
}

static int library_function(const void **kernel, void *library, const char *name)
{
    CUkernel found;
    int error = cuLibraryGetKernel(&found, library, name);
    return error ? error : cuKernelGetFunction((CUfunction *)kernel, found);
}

static int library_unload(void *library)
{
    return cuLibraryUnload(library);
}

static const struct module_method modules[] = {
    { "module", module_load, module_kernel, module_unload, module_global },
    { "library", library_load, library_kernel, library_unload, library_global },
    { "function", library_load, library_function, library_unload, library_global },
    { .name = NULL },
};

/* Loaded on the first device that wants them, and once only. */
static const void *builtins[BUILTIN_KERNELS];
static struct {
    CUmodule module;
    int device;
    void *context;
} builtin_module;

CUmodule driver_builtin_module(int *device, void **context)
{
    *device = builtin_module.device;
    *context = builtin_module.context;
    return builtin_module.module;
}

static int builtin(int number, const void **kernel)
{
    void *module;
    int error = 0;
    if (!builtins[number]) {
        error = module_load(&module, builtin_image);
        for (int i = 0; !error && i < BUILTIN_KERNELS; i++)
            error = module_kernel(&builtins[i], module, builtin_kernels[i]);
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

/* ---- streams and graphs ------------------------------------------------ */

static int pinned_alloc(void **address, size_t bytes)
{
    return cuMemHostAlloc(address, bytes, 0);
}

static int stream_create(void **stream)
{
    return cuStreamCreate((CUstream *)stream, 0);
}

static int stream_destroy(void *stream)
{
    return cuStreamDestroy_v2(stream);
}

static int stream_synchronize(void *stream)
{
    return cuStreamSynchronize(stream);
}

static int event_create(void **event)
{
    return cuEventCreate((CUevent *)event, 0);
}

static int event_destroy(void *event)
{
    return cuEventDestroy_v2(event);
}

static int event_record(void *event, void *stream)
{
    return cuEventRecord(event, stream);
}

static int stream_wait(void *stream, void *event)
{
    return cuStreamWaitEvent(stream, event, 0);
}

static int capture_begin(void *stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static int capture_end(void *stream, void **graph)
{
    return cuStreamEndCapture(stream, (CUgraph *)graph);
}

static int graph_nodes(void *graph, size_t *count)
{
    return cuGraphGetNodes(graph, NULL, count);
}

static int graph_instantiate(void **exec, void *graph)
{
    return cuGraphInstantiateWithFlags((CUgraphExec *)exec, graph, 0);
}

static int graph_launch(void *exec, void *stream)
{
    return cuGraphLaunch(exec, stream);
}

static int graph_destroy(void *graph, void *exec)
{
    int error = cuGraphExecDestroy(exec);
    return error ? error : cuGraphDestroy(graph);
}

const struct work_api driver_work = {
    .modules = modules,
    .launches = launches,
    .copies = driver_copies,
    .sets = driver_sets,
    .builtin = builtin,
    .handle = handle,
    .forget = forget,
    .pinned_alloc = pinned_alloc,
    .pinned_free = cuMemFreeHost,
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
