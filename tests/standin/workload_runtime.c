/*
 * Backend: libcudart, shared or static, bound at link time. With -DOPENED_LATER it is opened while
 * the program runs, for tracers that must attach to a library that was not there at the start; with
 * -DPER_THREAD_STREAMS, called as by a program that is compiled for per-thread default streams.
 */
#include "cudart_abi.h"
#include "workload_backend.h"
#include "workload_image.h"

#ifdef OPENED_LATER
#include <dlfcn.h>
#endif

#define TWINS(FUNCTION, symbol, suffix) FUNCTION(symbol) FUNCTION(symbol##suffix)

/* Functions that are called here, below their own names. */
/* clang-format off */
#define OWN_FUNCTIONS(FUNCTION) \
    FUNCTION(cudaMalloc3D) \
    FUNCTION(cudaMallocArray) \
    FUNCTION(cudaMalloc3DArray) \
    FUNCTION(cudaMallocMipmappedArray) \
    FUNCTION(__cudaRegisterVar) \
    FUNCTION(cudaGetSymbolAddress) \
    FUNCTION(__cudaRegisterFatBinary) \
    FUNCTION(__cudaRegisterFatBinaryEnd) \
    FUNCTION(__cudaRegisterFunction) \
    FUNCTION(__cudaGetKernel) \
    FUNCTION(cudaLibraryLoadData) \
    FUNCTION(cudaLibraryGetGlobal) \
    FUNCTION(cudaLibraryGetManaged) \
    TWINS(FUNCTION, cudaLaunchKernel, _ptsz) \
    TWINS(FUNCTION, cudaLaunchKernelExC, _ptsz) \
    TWINS(FUNCTION, cudaLaunchCooperativeKernel, _ptsz) \
    TWINS(FUNCTION, __cudaLaunchKernel, _ptsz) \
    TWINS(FUNCTION, cudaMemcpy, _ptds) \
    TWINS(FUNCTION, cudaMemcpyAsync, _ptsz) \
    FUNCTION(cudaMemcpyPeer) \
    FUNCTION(cudaMemcpyPeerAsync) \
    TWINS(FUNCTION, cudaMemcpy2D, _ptds) \
    TWINS(FUNCTION, cudaMemcpy2DAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemcpy3D, _ptds) \
    TWINS(FUNCTION, cudaMemcpy3DAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemcpyToArray, _ptds) \
    TWINS(FUNCTION, cudaMemcpyFromArray, _ptds) \
    TWINS(FUNCTION, cudaMemcpyArrayToArray, _ptds) \
    TWINS(FUNCTION, cudaMemcpyBatchAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemcpyWithAttributesAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemcpy3DWithAttributesAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemPrefetchBatchAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemDiscardAndPrefetchBatchAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemset, _ptds) \
    TWINS(FUNCTION, cudaMemsetAsync, _ptsz)
/* clang-format on */

static struct {
#define FUNCTION(symbol) __typeof__(&symbol) symbol;
    OWN_FUNCTIONS(FUNCTION)
#undef FUNCTION
} runtime;

/* ---- kernels ----------------------------------------------------------- */

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

/* The host's side of builtin_variables, as nvcc makes it: the runtime does not ask for the sizes of
 * variables, so that a tracer learns them from these symbols. */
static char standin_counter[COUNTER_BYTES], standin_table[TABLE_BYTES];
static void *const host_variables[BUILTIN_VARIABLES] = { standin_counter, standin_table };

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
            runtime.__cudaRegisterVar(handle, host_variables[i], (char *)builtin_variables[i].name,
                                      builtin_variables[i].name, 0, builtin_variables[i].bytes, 0,
                                      0);
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

static int library_global(void *library, const char *name, bool managed, uint64_t *address,
                          size_t *bytes)
{
    return managed ? runtime.cudaLibraryGetManaged((void **)address, bytes, library, name)
                   : runtime.cudaLibraryGetGlobal((void **)address, bytes, library, name);
}

static struct module_method modules[] = {
    { .name = "library", .load = library_load, .global = library_global },
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

/* ---- copies and sets --------------------------------------------------- */

static cudaMemcpyKind kind_of(const struct copy *c)
{
    static const cudaMemcpyKind kinds[2][2] = {
        [HOST] = { [HOST] = cudaMemcpyHostToHost, [DEVICE] = cudaMemcpyDeviceToHost },
        [DEVICE] = { [HOST] = cudaMemcpyHostToDevice, [DEVICE] = cudaMemcpyDeviceToDevice },
    };
    if (c->kind >= COPY_DEFAULT_H2D && c->kind <= COPY_DEFAULT_D2D)
        return cudaMemcpyDefault;
    return kinds[c->dst_place == HOST ? HOST : DEVICE][c->src_place == HOST ? HOST : DEVICE];
}

static const struct cudaMemcpy3DParms *rows_3d(const struct copy *c)
{
    static _Thread_local struct cudaMemcpy3DParms rows;
    rows = (struct cudaMemcpy3DParms){
        .srcPtr = { c->src, c->pitch, c->width, c->height },
        .dstPtr = { c->dst, c->pitch, c->width, c->height },
        .extent = { c->width, c->height, c->depth },
        .kind = kind_of(c),
    };
    return &rows;
}

static int call_batch(const struct copy *c, __typeof__(&cudaMemcpyBatchAsync) function)
{
    struct batch *b = batch_of(c);
    return function((void **)b->dsts, (void **)b->srcs, b->sizes, c->parts, &b->attributes,
                    &b->attribute_index, 1, &b->failed_index, b->stream);
}

/* Two pointers, whose operands begin with a 1. */
static struct cudaMemcpy3DBatchOp *cuboid_of(const struct copy *c)
{
    static _Thread_local CUDA_MEMCPY3D_BATCH_OP cuboid;
    cuboid = (CUDA_MEMCPY3D_BATCH_OP){
        .src = { CU_MEMCPY_OPERAND_TYPE_POINTER, { { (uintptr_t)c->src, 0, 0, { 0, 0 } } } },
        .dst = { CU_MEMCPY_OPERAND_TYPE_POINTER, { { (uintptr_t)c->dst, 0, 0, { 0, 0 } } } },
        .extent = { c->bytes / 2, 2, 1 },
    };
    return (struct cudaMemcpy3DBatchOp *)&cuboid;
}

#define PREFETCHES(c)                                                                    \
    (void **)batch_of(c)->dsts, batch_of(c)->sizes, (c)->parts,                          \
        (struct cudaMemLocation *)batch_of(c)->locations, batch_of(c)->location_indexes, \
        batch_of(c)->location_count, 0, batch_of(c)->stream

#define ROWS_2D(c) (c)->dst, (c)->pitch, (c)->src, (c)->pitch, (c)->width, (c)->height, kind_of(c)

#define TWO(COPY, symbol, suffix, kinds, arguments) \
    COPY(symbol, kinds, arguments) COPY(symbol##suffix, kinds, arguments)

/* COPY(function, kinds, arguments in terms of `c`) */
#define COPIES(COPY)                                                                           \
    TWO(COPY, cudaMemcpy, _ptds, KINDS_LINEAR, (c->dst, c->src, c->bytes, kind_of(c)))         \
    TWO(COPY, cudaMemcpyAsync, _ptsz, KINDS_LINEAR,                                            \
        (c->dst, c->src, c->bytes, kind_of(c), c->stream))                                     \
    COPY(cudaMemcpyPeer, KIND(PEER), (c->dst, c->dst_device, c->src, c->src_device, c->bytes)) \
    COPY(cudaMemcpyPeerAsync, KIND(PEER),                                                      \
         (c->dst, c->dst_device, c->src, c->src_device, c->bytes, c->stream))                  \
    TWO(COPY, cudaMemcpy2D, _ptds, KINDS_2D, (ROWS_2D(c)))                                     \
    TWO(COPY, cudaMemcpy2DAsync, _ptsz, KINDS_2D, (ROWS_2D(c), c->stream))                     \
    TWO(COPY, cudaMemcpy3D, _ptds, KINDS_3D, (rows_3d(c)))                                     \
    TWO(COPY, cudaMemcpy3DAsync, _ptsz, KINDS_3D, (rows_3d(c), c->stream))                     \
    TWO(COPY, cudaMemcpyToArray, _ptds, KIND(H2A) | KIND(D2A),                                 \
        (c->dst, 0, 0, c->src, c->bytes, kind_of(c)))                                          \
    TWO(COPY, cudaMemcpyFromArray, _ptds, KIND(A2H) | KIND(A2D),                               \
        (c->dst, c->src, 0, 0, c->bytes, kind_of(c)))                                          \
    TWO(COPY, cudaMemcpyWithAttributesAsync, _ptsz, KINDS_LINEAR,                              \
        (c->dst, c->src, c->bytes, &batch_of(c)->attributes, c->stream))                       \
    TWO(COPY, cudaMemcpy3DWithAttributesAsync, _ptsz, KIND(BATCH_3D),                          \
        (cuboid_of(c), 0, batch_of(c)->stream))                                                \
    TWO(COPY, cudaMemPrefetchBatchAsync, _ptsz, KINDS_PREFETCHES, (PREFETCHES(c)))             \
    TWO(COPY, cudaMemDiscardAndPrefetchBatchAsync, _ptsz, KINDS_PREFETCHES, (PREFETCHES(c)))   \
    TWO(COPY, cudaMemcpyArrayToArray, _ptds, KIND(A2A),                                        \
        (c->dst, 0, 0, c->src, 0, 0, c->bytes, kind_of(c)))

#define DEFINE(symbol, kinds, arguments)           \
    static int call_##symbol(const struct copy *c) \
    {                                              \
        return runtime.symbol arguments;           \
    }
COPIES(DEFINE)

static int call_cudaMemcpyBatchAsync(const struct copy *c)
{
    return call_batch(c, runtime.cudaMemcpyBatchAsync);
}

static int call_cudaMemcpyBatchAsync_ptsz(const struct copy *c)
{
    return call_batch(c, runtime.cudaMemcpyBatchAsync_ptsz);
}

#define ROW(symbol, kinds, arguments) { #symbol, kinds, call_##symbol },

static const struct copy_method copies[] = {
    COPIES(ROW) ROW(cudaMemcpyBatchAsync, KIND(BATCH), )
        ROW(cudaMemcpyBatchAsync_ptsz, KIND(BATCH), ){ .function = NULL },
};

/* SET(function, arguments in terms of `s`) */
#define SETS(SET)                                                 \
    SET(cudaMemset, (s->address, 0x5a, s->bytes))                 \
    SET(cudaMemset_ptds, (s->address, 0x5a, s->bytes))            \
    SET(cudaMemsetAsync, (s->address, 0x5a, s->bytes, s->stream)) \
    SET(cudaMemsetAsync_ptsz, (s->address, 0x5a, s->bytes, s->stream))

#define DEFINE_SET(symbol, arguments)             \
    static int call_##symbol(const struct set *s) \
    {                                             \
        return runtime.symbol arguments;          \
    }
SETS(DEFINE_SET)

#define SET_ROW(symbol, arguments) { #symbol, 1, call_##symbol },
static const struct set_method sets[] = {
    SETS(SET_ROW){ .function = NULL },
};

/* ---- memory ------------------------------------------------------------ */

static int pitched_3d(void **address, size_t *pitch, size_t width, size_t height, size_t depth)
{
    struct cudaPitchedPtr rows = { 0 };
    int error = runtime.cudaMalloc3D(&rows, (struct cudaExtent){ width, height, depth });
    *address = rows.ptr;
    *pitch = rows.pitch;
    return error;
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

static int mipmap(void **result, const struct array_shape *shape)
{
    struct cudaChannelFormatDesc channels = channels_of(shape);
    struct cudaExtent extent = { shape->width, shape->height, shape->depth };
    return runtime.cudaMallocMipmappedArray((cudaMipmappedArray_t *)result, &channels, extent,
                                            shape->levels, shape->flags);
}

/* Registered with the kernels, at the first use of one. */
static int builtin_variable(int number, void **address, int *device, void **context)
{
    (void)device, (void)context;
    const void *kernel;
    int error = builtin(0, &kernel);
    return error ? error : runtime.cudaGetSymbolAddress(address, host_variables[number]);
}

/* ---- the table --------------------------------------------------------- */

#ifdef PER_THREAD_STREAMS
#define TWIN_ENTRY(name, arguments, symbol, driver) ENTRY(api.name, symbol##_ptsz)
#else
#define TWIN_ENTRY(name, arguments, symbol, driver) ENTRY(api.name, symbol)
#endif
#define API_ENTRY(name, arguments, symbol, driver) ENTRY(api.name, symbol)
#define OWN_ENTRY(symbol) ENTRY(runtime.symbol, symbol)

#define ENTRIES                                    \
    API_FUNCTIONS(API_ENTRY, TWIN_ENTRY)           \
    ENTRY(modules[0].kernel, cudaLibraryGetKernel) \
    ENTRY(modules[0].unload, cudaLibraryUnload)    \
    OWN_FUNCTIONS(OWN_ENTRY)

#ifdef OPENED_LATER

static const char *load(const char *path)
{
    static const struct {
        const char *name;
        void **function;
    } entries[] = {
#define ENTRY(field, symbol) { #symbol, (void **)&field },
        ENTRIES
#undef ENTRY
    };
    enum { COUNT = sizeof entries / sizeof *entries };
    void *library = dlopen(path, RTLD_NOW), *functions[COUNT];
    if (!library)
        return dlerror();
    for (int i = 0; i < COUNT; i++)
        if (!(functions[i] = dlsym(library, entries[i].name)))
            return dlerror();
    for (int i = 0; i < COUNT; i++)
        *entries[i].function = functions[i];
    return NULL;
}
#define NAME_AND_START .name = "dlopen", .load = load

#else

static int start(bool create_contexts)
{
    (void)create_contexts; /* the runtime has its own */
#define ENTRY(field, symbol) field = (void *)symbol;
    ENTRIES
#undef ENTRY
    return 0;
}
#define NAME_AND_START .name = "runtime", .start = start

#endif

struct api api = {
    NAME_AND_START,      .modules = modules, .launches = launches,
    .copies = copies,    .sets = sets,       .builtin = builtin,
    .handle = handle_of, .forget = forget,   .pitched_3d = pitched_3d,
    .array = array,      .mipmap = mipmap,   .builtin_variable = builtin_variable,
};
