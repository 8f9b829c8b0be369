/* The runtime backends' copies and sets. */
#include "cuda_abi.h"
#include "workload_runtime.h"

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
    void *dsts[MOST_BATCH_PARTS], *srcs[MOST_BATCH_PARTS];
    size_t sizes[MOST_BATCH_PARTS], attribute_index = 0, failed_index, part = c->bytes / c->parts;
    cudaMemcpyAttributes attributes = { .srcAccessOrder = 1 };
    for (size_t i = 0; i < c->parts; i++) {
        dsts[i] = (char *)c->dst + i * part;
        srcs[i] = (char *)c->src + i * part;
        sizes[i] = i + 1 < c->parts ? part : c->bytes - i * part;
    }
    return function(dsts, srcs, sizes, c->parts, &attributes, &attribute_index, 1, &failed_index,
                    c->stream ? (cudaStream_t)c->stream : CU_STREAM_PER_THREAD);
}

#define LINEAR_KINDS                                                                         \
    (KIND(H2D) | KIND(D2H) | KIND(D2D) | KIND(H2H) | KIND(DEFAULT_H2D) | KIND(DEFAULT_D2H) | \
     KIND(DEFAULT_D2D))
#define KINDS_2D (KIND(2D_H2D) | KIND(2D_D2H) | KIND(2D_D2D))
#define KINDS_3D (KIND(3D_H2D) | KIND(3D_D2H) | KIND(3D_D2D))

#define ROWS_2D(c) (c)->dst, (c)->pitch, (c)->src, (c)->pitch, (c)->width, (c)->height, kind_of(c)

#define TWO(COPY, symbol, suffix, kinds, arguments) \
    COPY(symbol, kinds, arguments) COPY(symbol##suffix, kinds, arguments)

/* COPY(function, kinds, arguments in terms of `c`) */
#define COPIES(COPY)                                                                           \
    TWO(COPY, cudaMemcpy, _ptds, LINEAR_KINDS, (c->dst, c->src, c->bytes, kind_of(c)))         \
    TWO(COPY, cudaMemcpyAsync, _ptsz, LINEAR_KINDS,                                            \
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

const struct copy_method runtime_copies[] = {
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
const struct set_method runtime_sets[] = {
    SETS(SET_ROW){ .function = NULL },
};
