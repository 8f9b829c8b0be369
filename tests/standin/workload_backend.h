/* Which CUDA the workload calls. Each program is linked with one backend. */
#ifndef STANDIN_WORKLOAD_BACKEND_H
#define STANDIN_WORKLOAD_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

/*
 * A backend is tables of functions. All return 0 or the CUDA error.
 *
 * Where the runtime and the driver have the same function, the tables have CUDA's own, so that a
 * call's stack leads straight from cudaMalloc to the workload function that wanted memory: handles
 * and addresses are passed alike whatever their type, and the structures that the driver's headers
 * describe begin as the runtime's do.
 */

/* ---- launches ---------------------------------------------------------- */

/* Kernels that every program has without loading a module. */
enum { BUILTIN_KERNELS = 4 };
extern const char *const builtin_kernels[BUILTIN_KERNELS];
/* The image of a module with them. */
extern const char builtin_image[];

struct launch {
    const void *kernel;
    unsigned int grid[3], block[3];
    void *stream;
};

struct launch_method {
    const char *name; /* for `via=`, beside the function's own */
    const char *function;
    int (*call)(const struct launch *launch);
};

/* A way to get the kernels of a module. */
struct module_method {
    const char *name;
    int (*load)(void **module, const char *image);
    int (*kernel)(const void **kernel, void *module, const char *name);
    int (*unload)(void *module);
    /* Of the variable `name`. `address` and `bytes` may be NULL. */
    int (*global)(void *module, const char *name, bool managed, uint64_t *address, size_t *bytes);
};

/* ---- copies and sets --------------------------------------------------- */

enum copy_kind {
    COPY_H2D,
    COPY_D2H,
    COPY_D2D,
    COPY_H2H,
    COPY_DEFAULT_H2D,
    COPY_DEFAULT_D2H,
    COPY_DEFAULT_D2D,
    COPY_PEER,
    COPY_2D_H2D,
    COPY_2D_D2H,
    COPY_2D_D2D,
    COPY_3D_H2D,
    COPY_3D_D2H,
    COPY_3D_D2D,
    COPY_BATCH,
    COPY_BATCH_3D,
    COPY_BATCH_3D_ARRAY,
    COPY_H2A,
    COPY_A2H,
    COPY_D2A,
    COPY_A2D,
    COPY_A2A,
    COPY_BATCH_MIXED,
    COPY_PREFETCH,
    COPY_PREFETCH_HOST,
    COPY_PREFETCH_DOMAIN,
    COPY_PREFETCH_BOTH,
    COPY_KINDS,
};

#define KIND(name) (1u << COPY_##name)
#define KINDS_LINEAR                                                                         \
    (KIND(H2D) | KIND(D2H) | KIND(D2D) | KIND(H2H) | KIND(DEFAULT_H2D) | KIND(DEFAULT_D2H) | \
     KIND(DEFAULT_D2D))
#define KINDS_2D (KIND(2D_H2D) | KIND(2D_D2H) | KIND(2D_D2D))
#define KINDS_3D (KIND(3D_H2D) | KIND(3D_D2H) | KIND(3D_D2D))
#define KINDS_BATCH (KIND(BATCH) | KIND(BATCH_MIXED))
#define KINDS_BATCH_3D (KIND(BATCH_3D) | KIND(BATCH_3D_ARRAY))
#define KINDS_PREFETCH (KIND(PREFETCH) | KIND(PREFETCH_HOST) | KIND(PREFETCH_DOMAIN))
#define KINDS_PREFETCHES (KINDS_PREFETCH | KIND(PREFETCH_BOTH))

enum place { HOST, DEVICE, ARRAY };

struct copy {
    enum copy_kind kind;
    enum place dst_place, src_place;
    void *dst, *src;
    size_t bytes;
    /* Of a copy of rows, on both sides; width * height * depth == bytes. */
    size_t pitch, width, height, depth;
    int dst_device, src_device; /* of a copy between peers */
    size_t parts;               /* of a batch, which is one call */
    void *stream;
};

enum {
    BATCH_PARTS = 4, /* unless the command says otherwise */
    MOST_BATCH_PARTS = 300,
};

/* The arguments of a batch that is `copy` in parts, until the thread's next. */
struct batch {
    CUdeviceptr dsts[MOST_BATCH_PARTS], srcs[MOST_BATCH_PARTS];
    size_t sizes[MOST_BATCH_PARTS], attribute_index, failed_index;
    CUmemcpyAttributes attributes;
    CUmemLocation locations[2]; /* of prefetches */
    size_t location_indexes[2], location_count;
    void *stream;
};
struct batch *batch_of(const struct copy *copy);

struct copy_method {
    const char *function;
    unsigned int kinds; /* KIND()s that it can do */
    int (*call)(const struct copy *copy);
};

struct set {
    void *address;
    size_t bytes;
    void *stream;
};

struct set_method {
    const char *function;
    unsigned int element_bytes;
    int (*call)(const struct set *set);
};

/* ---- memory ------------------------------------------------------------ */

struct array_shape {
    size_t width, height, depth; /* in elements; 0 where there is no such side */
    unsigned int channels;
    unsigned int bits;   /* of a channel, an unsigned integer; or 0 and */
    unsigned int format; /* a CUarray_format */
    unsigned int flags;
    unsigned int levels; /* of a mipmapped array */
};

/* Variables that every program has without loading a module. */
enum { BUILTIN_VARIABLES = 2 };
struct builtin_variable {
    const char *name;
    size_t bytes;
};
extern const struct builtin_variable builtin_variables[BUILTIN_VARIABLES];

/* ---- the backend ------------------------------------------------------- */

/*
 * FUNCTION(name, arguments, the runtime's function, the driver's)
 *
 * TWIN is one that has a variant for per-thread default streams. The driver's are CUDA's own, or
 * those of workload_driver.c where it has none that is alike.
 */
/* clang-format off */
#define API_FUNCTIONS(FUNCTION, TWIN) \
    FUNCTION(alloc, (void **address, size_t bytes), cudaMalloc, cuMemAlloc_v2) \
    FUNCTION(release, (void *address), cudaFree, cuMemFree_v2) \
    FUNCTION(set_device, (int device), cudaSetDevice, driver_set_device) \
    FUNCTION(get_device, (int *device), cudaGetDevice, cuCtxGetDevice) \
    FUNCTION(device_count, (int *count), cudaGetDeviceCount, cuDeviceGetCount) \
    FUNCTION(memory, (size_t *free_bytes, size_t *total_bytes), cudaMemGetInfo, cuMemGetInfo_v2) \
    FUNCTION(synchronize, (void), cudaDeviceSynchronize, cuCtxSynchronize) \
    /* All memory of the current device is freed. */ \
    FUNCTION(reset, (void), cudaDeviceReset, driver_reset) \
    \
    FUNCTION(stream_create, (void **stream), cudaStreamCreate, stream_create) \
    FUNCTION(stream_destroy, (void *stream), cudaStreamDestroy, cuStreamDestroy_v2) \
    FUNCTION(stream_synchronize, (void *stream), cudaStreamSynchronize, cuStreamSynchronize) \
    FUNCTION(event_create, (void **event), cudaEventCreate, event_create) \
    FUNCTION(event_destroy, (void *event), cudaEventDestroy, cuEventDestroy_v2) \
    FUNCTION(event_record, (void *event, void *stream), cudaEventRecord, cuEventRecord) \
    /* `stream` then waits for what `event` was recorded on, and joins its capture, too. */ \
    FUNCTION(stream_wait, (void *stream, void *event, unsigned int flags), \
             cudaStreamWaitEvent, cuStreamWaitEvent) \
    FUNCTION(capture_begin, (void *stream, CUstreamCaptureMode mode), \
             cudaStreamBeginCapture, cuStreamBeginCapture_v2) \
    FUNCTION(capture_end, (void *stream, void **graph), cudaStreamEndCapture, cuStreamEndCapture) \
    FUNCTION(graph_create, (void **graph, unsigned int flags), cudaGraphCreate, cuGraphCreate) \
    FUNCTION(graph_nodes, (void *graph, void **nodes, size_t *count), \
             cudaGraphGetNodes, cuGraphGetNodes) \
    FUNCTION(graph_instantiate, (void **exec, void *graph, unsigned long long flags), \
             cudaGraphInstantiate, cuGraphInstantiateWithFlags) \
    FUNCTION(graph_launch, (void *exec, void *stream), cudaGraphLaunch, cuGraphLaunch) \
    FUNCTION(graph_destroy, (void *graph), cudaGraphDestroy, cuGraphDestroy) \
    FUNCTION(exec_destroy, (void *exec), cudaGraphExecDestroy, cuGraphExecDestroy) \
    FUNCTION(graph_alloc, (void **node, void *graph, void **dependencies, size_t dependency_count, \
                           CUDA_MEM_ALLOC_NODE_PARAMS *params), \
             cudaGraphAddMemAllocNode, cuGraphAddMemAllocNode) \
    FUNCTION(graph_free, (void **node, void *graph, void **dependencies, size_t dependency_count, \
                          void *address), \
             cudaGraphAddMemFreeNode, cuGraphAddMemFreeNode) \
    FUNCTION(graph_trim, (int device), cudaDeviceGraphMemTrim, cuDeviceGraphMemTrim) \
    \
    FUNCTION(pitched, (void **address, size_t *pitch, size_t width, size_t height), \
             cudaMallocPitch, pitched) \
    FUNCTION(managed, (void **address, size_t bytes, unsigned int flags), \
             cudaMallocManaged, cuMemAllocManaged) \
    FUNCTION(pinned, (void **address, size_t bytes), cudaMallocHost, cuMemAllocHost_v2) \
    FUNCTION(pinned_for_copy, (void **address, size_t bytes), cudaMallocHost, pinned_for_copy) \
    FUNCTION(host_alloc, (void **address, size_t bytes, unsigned int flags), \
             cudaHostAlloc, cuMemHostAlloc) \
    FUNCTION(pinned_free, (void *address), cudaFreeHost, cuMemFreeHost) \
    FUNCTION(host_register, (void *address, size_t bytes, unsigned int flags), \
             cudaHostRegister, cuMemHostRegister_v2) \
    FUNCTION(host_unregister, (void *address), cudaHostUnregister, cuMemHostUnregister) \
    FUNCTION(array_free, (void *array), cudaFreeArray, cuArrayDestroy) \
    FUNCTION(mipmap_free, (void *array), cudaFreeMipmappedArray, cuMipmappedArrayDestroy) \
    \
    TWIN(async_alloc, (void **address, size_t bytes, void *stream), \
         cudaMallocAsync, cuMemAllocAsync) \
    TWIN(alloc_from, (void **address, size_t bytes, void *pool, void *stream), \
         cudaMallocFromPoolAsync, cuMemAllocFromPoolAsync) \
    TWIN(async_free, (void *address, void *stream), cudaFreeAsync, cuMemFreeAsync) \
    FUNCTION(pool_create, (void **pool, const CUmemPoolProps *properties), \
             cudaMemPoolCreate, cuMemPoolCreate) \
    FUNCTION(pool_destroy, (void *pool), cudaMemPoolDestroy, cuMemPoolDestroy) \
    FUNCTION(pool_trim, (void *pool, size_t kept_bytes), cudaMemPoolTrimTo, cuMemPoolTrimTo) \
    FUNCTION(pool_get, (void *pool, int attribute, uint64_t *value), \
             cudaMemPoolGetAttribute, cuMemPoolGetAttribute) \
    FUNCTION(pool_set, (void *pool, int attribute, uint64_t *value), \
             cudaMemPoolSetAttribute, cuMemPoolSetAttribute) \
    FUNCTION(device_default_pool, (void **pool, int device), \
             cudaDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool) \
    FUNCTION(device_set_pool, (int device, void *pool), cudaDeviceSetMemPool, cuDeviceSetMemPool) \
    \
    FUNCTION(ipc_get, (CUipcMemHandle *handle, void *address), \
             cudaIpcGetMemHandle, cuIpcGetMemHandle) \
    FUNCTION(ipc_open, (void **address, CUipcMemHandle handle, unsigned int flags), \
             cudaIpcOpenMemHandle, cuIpcOpenMemHandle_v2) \
    FUNCTION(ipc_close, (void *address), cudaIpcCloseMemHandle, cuIpcCloseMemHandle) \
    FUNCTION(external_import, (void **memory, \
                               const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description), \
             cudaImportExternalMemory, cuImportExternalMemory) \
    FUNCTION(external_map, (void **address, void *memory, \
                            const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *description), \
             cudaExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer) \
    FUNCTION(external_destroy, (void *memory), cudaDestroyExternalMemory, cuDestroyExternalMemory)
/* clang-format on */

struct api {
    const char *name;
    /* Opens the runtime at `path`; returns NULL or the reason. NULL for the backends that are
     * linked with their library. */
    const char *(*load)(const char *path);
    /* Before the first command; NULL if there is nothing to do. */
    int (*start)(bool create_contexts);
    /* On every new thread; NULL where threads need nothing. */
    int (*enter_thread)(void);

    /* Commands choose a function by its name: a row an API function, in the order of preference;
     * each table ends with a row of NULLs. */
    const struct module_method *modules;
    const struct launch_method *launches;
    const struct copy_method *copies;
    const struct set_method *sets;

    /* The function to launch for builtin_kernels[number]. */
    int (*builtin)(int number, const void **kernel);
    /* The handle under which the driver sees `kernel` launched. */
    int (*handle)(const void *kernel, const void **handle);
    /* After the current device was reset. */
    void (*forget)(void);

    int (*pitched_3d)(void **address, size_t *pitch, size_t width, size_t height, size_t depth);
    int (*array)(void **array, const struct array_shape *shape);
    int (*mipmap)(void **array, const struct array_shape *shape);
    /* The address of builtin_variables[number], and its context if that is not the current one. */
    int (*builtin_variable)(int number, void **address, int *device, void **context);

    /* The effect of a context command on the calling thread, and on `context`; NULL: the backend
     * cannot select contexts. */
    int (*context_create)(void **context, unsigned int flags, int device); /* and pushes it */
    int (*context_destroy)(void *context);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*context_set)(void *context);
    int (*checkpoint)(const char *step, int pid);
    int (*retain_primary)(int device);
    /* `ended` is whether that was the last of the workload's references, so that all of the
     * context's memory was freed; a new one is then current. */
    int (*release_primary)(int device, bool *ended);

#define FUNCTION(name, arguments, runtime, driver) int(*name) arguments;
    API_FUNCTIONS(FUNCTION, FUNCTION)
#undef FUNCTION
};

/* Not const: the runtime's are filled in when the program starts, or when `load` opens it. */
extern struct api api;

#endif
