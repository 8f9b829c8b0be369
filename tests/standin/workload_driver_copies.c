/* The driver backend's copies and sets, by every function. */
#include "workload_driver.h"

#define ADDRESS(pointer) ((CUdeviceptr)(pointer))

static const CUmemorytype memory_type[] = {
    [HOST] = CU_MEMORYTYPE_HOST,
    [DEVICE] = CU_MEMORYTYPE_DEVICE,
    [ARRAY] = CU_MEMORYTYPE_ARRAY,
};

static void *on_host(enum place place, void *address)
{
    return place == HOST ? address : NULL;
}

static CUdeviceptr on_device(enum place place, void *address)
{
    return place == HOST ? 0 : ADDRESS(address);
}

/* Descriptions live until the thread's next call. */
static const CUDA_MEMCPY2D *rows_2d(const struct copy *c)
{
    static _Thread_local CUDA_MEMCPY2D rows;
    rows = (CUDA_MEMCPY2D){
        .srcMemoryType = memory_type[c->src_place],
        .srcHost = on_host(c->src_place, c->src),
        .srcDevice = on_device(c->src_place, c->src),
        .srcPitch = c->pitch,
        .dstMemoryType = memory_type[c->dst_place],
        .dstHost = on_host(c->dst_place, c->dst),
        .dstDevice = on_device(c->dst_place, c->dst),
        .dstPitch = c->pitch,
        .WidthInBytes = c->width,
        .Height = c->height,
    };
    return &rows;
}

static const CUDA_MEMCPY3D *rows_3d(const struct copy *c)
{
    static _Thread_local CUDA_MEMCPY3D rows;
    rows = (CUDA_MEMCPY3D){
        .srcMemoryType = memory_type[c->src_place],
        .srcHost = on_host(c->src_place, c->src),
        .srcDevice = on_device(c->src_place, c->src),
        .srcPitch = c->pitch,
        .srcHeight = c->height,
        .dstMemoryType = memory_type[c->dst_place],
        .dstHost = on_host(c->dst_place, c->dst),
        .dstDevice = on_device(c->dst_place, c->dst),
        .dstPitch = c->pitch,
        .dstHeight = c->height,
        .WidthInBytes = c->width,
        .Height = c->height,
        .Depth = c->depth,
    };
    return &rows;
}

static CUcontext context_of(int device)
{
    CUcontext context;
    return driver_context(device, &context) ? NULL : context;
}

static int call_batch(const struct copy *c, __typeof__(&cuMemcpyBatchAsync) function)
{
    struct batch *b = batch_of(c);
    return function(b->dsts, b->srcs, b->sizes, c->parts, &b->attributes, &b->attribute_index, 1,
                    &b->failed_index, b->stream);
}

static int call_batch_v2(const struct copy *c, __typeof__(&cuMemcpyBatchAsync_v2) function)
{
    struct batch *b = batch_of(c);
    return function(b->dsts, b->srcs, b->sizes, c->parts, &b->attributes, &b->attribute_index, 1,
                    b->stream);
}

static int call_prefetch_batch(const struct copy *c, __typeof__(&cuMemPrefetchBatchAsync) function)
{
    struct batch *b = batch_of(c);
    return function(b->dsts, b->sizes, c->parts, b->locations, b->location_indexes,
                    b->location_count, 0, b->stream);
}

static void set_operand(CUmemcpy3DOperand *operand, enum place place, void *start, size_t offset)
{
    if (place == ARRAY) {
        operand->type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
        operand->op.array.array = start;
    } else {
        operand->type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        operand->op.ptr.ptr = ADDRESS(start) + offset;
    }
}

/* The operations of a batch that is `c` in parts: cuboids, where the bytes can be divided. */
static CUDA_MEMCPY3D_BATCH_OP *cuboids_of(const struct copy *c)
{
    static _Thread_local CUDA_MEMCPY3D_BATCH_OP cuboids[MOST_BATCH_PARTS];
    size_t part = c->bytes / c->parts;
    for (size_t i = 0; i < c->parts; i++) {
        size_t bytes = i + 1 < c->parts ? part : c->bytes - i * part;
        size_t height = bytes % 2 ? 1 : 2, depth = bytes / height % 3 ? 1 : 3;
        cuboids[i] = (CUDA_MEMCPY3D_BATCH_OP){
            .extent = { bytes / height / depth, height, depth },
            .srcAccessOrder = 1,
        };
        set_operand(&cuboids[i].dst, c->dst_place, c->dst, i * part);
        set_operand(&cuboids[i].src, c->src_place, c->src, i * part);
    }
    return cuboids;
}

static int call_cuboids(const struct copy *c, __typeof__(&cuMemcpy3DBatchAsync) function)
{
    size_t failed_index;
    return function(c->parts, cuboids_of(c), &failed_index, 0, batch_of(c)->stream);
}

static int call_cuboids_v2(const struct copy *c, __typeof__(&cuMemcpy3DBatchAsync_v2) function)
{
    return function(c->parts, cuboids_of(c), 0, batch_of(c)->stream);
}

/* The whole of `c`, whatever its parts are. */
static CUDA_MEMCPY3D_BATCH_OP *cuboid_of(const struct copy *c)
{
    struct copy whole = *c;
    whole.parts = 1;
    return cuboids_of(&whole);
}

/* TWINS(function, suffix of its variant, kinds, arguments in terms of `c`) */
#define COPIES(TWINS)                                                                              \
    TWINS(cuMemcpyHtoD_v2, _ptds, KIND(H2D), (ADDRESS(c->dst), c->src, c->bytes))                  \
    TWINS(cuMemcpyDtoH_v2, _ptds, KIND(D2H), (c->dst, ADDRESS(c->src), c->bytes))                  \
    TWINS(cuMemcpyDtoD_v2, _ptds, KIND(D2D), (ADDRESS(c->dst), ADDRESS(c->src), c->bytes))         \
    TWINS(cuMemcpyHtoDAsync_v2, _ptsz, KIND(H2D), (ADDRESS(c->dst), c->src, c->bytes, c->stream))  \
    TWINS(cuMemcpyDtoHAsync_v2, _ptsz, KIND(D2H), (c->dst, ADDRESS(c->src), c->bytes, c->stream))  \
    TWINS(cuMemcpyDtoDAsync_v2, _ptsz, KIND(D2D),                                                  \
          (ADDRESS(c->dst), ADDRESS(c->src), c->bytes, c->stream))                                 \
    TWINS(cuMemcpy, _ptds, KINDS_LINEAR, (ADDRESS(c->dst), ADDRESS(c->src), c->bytes))             \
    TWINS(cuMemcpyAsync, _ptsz, KINDS_LINEAR,                                                      \
          (ADDRESS(c->dst), ADDRESS(c->src), c->bytes, c->stream))                                 \
    TWINS(cuMemcpyPeer, _ptds, KIND(PEER),                                                         \
          (ADDRESS(c->dst), context_of(c->dst_device), ADDRESS(c->src), context_of(c->src_device), \
           c->bytes))                                                                              \
    TWINS(cuMemcpyPeerAsync, _ptsz, KIND(PEER),                                                    \
          (ADDRESS(c->dst), context_of(c->dst_device), ADDRESS(c->src), context_of(c->src_device), \
           c->bytes, c->stream))                                                                   \
    TWINS(cuMemcpy2D_v2, _ptds, KINDS_2D, (rows_2d(c)))                                            \
    TWINS(cuMemcpy2DUnaligned_v2, _ptds, KINDS_2D, (rows_2d(c)))                                   \
    TWINS(cuMemcpy2DAsync_v2, _ptsz, KINDS_2D, (rows_2d(c), c->stream))                            \
    TWINS(cuMemcpy3D_v2, _ptds, KINDS_3D, (rows_3d(c)))                                            \
    TWINS(cuMemcpy3DAsync_v2, _ptsz, KINDS_3D, (rows_3d(c), c->stream))                            \
    TWINS(cuMemcpyHtoA_v2, _ptds, KIND(H2A), (c->dst, 0, c->src, c->bytes))                        \
    TWINS(cuMemcpyAtoH_v2, _ptds, KIND(A2H), (c->dst, c->src, 0, c->bytes))                        \
    TWINS(cuMemcpyHtoAAsync_v2, _ptsz, KIND(H2A), (c->dst, 0, c->src, c->bytes, c->stream))        \
    TWINS(cuMemcpyAtoHAsync_v2, _ptsz, KIND(A2H), (c->dst, c->src, 0, c->bytes, c->stream))        \
    TWINS(cuMemcpyDtoA_v2, _ptds, KIND(D2A), (c->dst, 0, ADDRESS(c->src), c->bytes))               \
    TWINS(cuMemcpyAtoD_v2, _ptds, KIND(A2D), (ADDRESS(c->dst), c->src, 0, c->bytes))               \
    TWINS(cuMemcpyAtoA_v2, _ptds, KIND(A2A), (c->dst, 0, c->src, 0, c->bytes))                     \
    TWINS(cuMemcpyWithAttributesAsync, _ptsz, KINDS_LINEAR,                                        \
          (ADDRESS(c->dst), ADDRESS(c->src), c->bytes, &batch_of(c)->attributes, c->stream))       \
    TWINS(cuMemcpy3DWithAttributesAsync, _ptsz, KINDS_BATCH_3D,                                    \
          (cuboid_of(c), 0, batch_of(c)->stream))                                                  \
    TWINS(cuMemPrefetchAsync, _ptsz, KIND(PREFETCH) | KIND(PREFETCH_HOST),                         \
          (ADDRESS(c->dst), c->bytes, c->kind == COPY_PREFETCH ? c->dst_device : CU_DEVICE_CPU,    \
           c->stream))                                                                             \
    TWINS(cuMemPrefetchAsync_v2, _ptsz, KINDS_PREFETCH,                                            \
          (ADDRESS(c->dst), c->bytes, batch_of(c)->locations[0], 0, c->stream))

#define DEFINE(symbol, arguments)                  \
    static int call_##symbol(const struct copy *c) \
    {                                              \
        return symbol arguments;                   \
    }
#define DEFINE_TWINS(symbol, suffix, kinds, arguments) \
    DEFINE(symbol, arguments) DEFINE(symbol##suffix, arguments)
COPIES(DEFINE_TWINS)

#define DEFINE_BATCH(symbol, call)                 \
    static int call_##symbol(const struct copy *c) \
    {                                              \
        return call(c, symbol);                    \
    }
DEFINE_BATCH(cuMemcpyBatchAsync, call_batch)
DEFINE_BATCH(cuMemcpyBatchAsync_ptsz, call_batch)
DEFINE_BATCH(cuMemcpyBatchAsync_v2, call_batch_v2)
DEFINE_BATCH(cuMemcpyBatchAsync_v2_ptsz, call_batch_v2)
DEFINE_BATCH(cuMemPrefetchBatchAsync, call_prefetch_batch)
DEFINE_BATCH(cuMemPrefetchBatchAsync_ptsz, call_prefetch_batch)
DEFINE_BATCH(cuMemDiscardAndPrefetchBatchAsync, call_prefetch_batch)
DEFINE_BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, call_prefetch_batch)
DEFINE_BATCH(cuMemcpy3DBatchAsync, call_cuboids)
DEFINE_BATCH(cuMemcpy3DBatchAsync_ptsz, call_cuboids)
DEFINE_BATCH(cuMemcpy3DBatchAsync_v2, call_cuboids_v2)
DEFINE_BATCH(cuMemcpy3DBatchAsync_v2_ptsz, call_cuboids_v2)

#define ROW(symbol, kinds) { #symbol, kinds, call_##symbol },
#define ROW_TWINS(symbol, suffix, kinds, arguments) ROW(symbol, kinds) ROW(symbol##suffix, kinds)
#define ROW_PAIR(symbol, kinds) ROW_TWINS(symbol, _ptsz, kinds, )

const struct copy_method driver_copies[] = {
    COPIES(ROW_TWINS) ROW_PAIR(cuMemcpyBatchAsync, KINDS_BATCH)
        ROW_PAIR(cuMemcpyBatchAsync_v2, KINDS_BATCH) ROW_PAIR(cuMemcpy3DBatchAsync, KINDS_BATCH_3D)
            ROW_PAIR(cuMemcpy3DBatchAsync_v2, KINDS_BATCH_3D) ROW_PAIR(cuMemPrefetchBatchAsync,
                                                                       KINDS_PREFETCHES)
                ROW_PAIR(cuMemDiscardAndPrefetchBatchAsync, KINDS_PREFETCHES){ .function = NULL },
};

/* Two rows, where the elements can be halved. */
static size_t rows_of(const struct set *s, unsigned int element_bytes)
{
    return s->bytes / element_bytes % 2 ? 1 : 2;
}

#define SET_1D(s, element) ADDRESS((s)->address), 0x5a, (s)->bytes / (element)
#define SET_2D(s, element)                                         \
    ADDRESS((s)->address), (s)->bytes / rows_of(s, element), 0x5a, \
        (s)->bytes / (element) / rows_of(s, element), rows_of(s, element)

/* SET(function, element bytes, arguments in terms of `s`) */
#define SETS_OF(SET, bits, element)                                            \
    SET(cuMemsetD##bits##_v2, element, (SET_1D(s, element)))                   \
    SET(cuMemsetD##bits##_v2_ptds, element, (SET_1D(s, element)))              \
    SET(cuMemsetD##bits##Async, element, (SET_1D(s, element), s->stream))      \
    SET(cuMemsetD##bits##Async_ptsz, element, (SET_1D(s, element), s->stream)) \
    SET(cuMemsetD2D##bits##_v2, element, (SET_2D(s, element)))                 \
    SET(cuMemsetD2D##bits##_v2_ptds, element, (SET_2D(s, element)))            \
    SET(cuMemsetD2D##bits##Async, element, (SET_2D(s, element), s->stream))    \
    SET(cuMemsetD2D##bits##Async_ptsz, element, (SET_2D(s, element), s->stream))
#define SETS(SET) SETS_OF(SET, 8, 1) SETS_OF(SET, 16, 2) SETS_OF(SET, 32, 4)

#define DEFINE_SET(symbol, element, arguments)    \
    static int call_##symbol(const struct set *s) \
    {                                             \
        return symbol arguments;                  \
    }
SETS(DEFINE_SET)

#define SET_ROW(symbol, element, arguments) { #symbol, element, call_##symbol },
const struct set_method driver_sets[] = {
    SETS(SET_ROW){ .function = NULL },
};
