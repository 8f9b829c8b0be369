/*
 * Stand-in libcuda: copies. Device memory has no content, so that a copy moves
 * nothing, except from host to host.
 *
 * What it has is a duration: a call that waits for a transfer between host and
 * device takes bytes / STANDIN_COPY_GBPS. All others return at once, as those
 * do on a GPU that only leave work behind: their duration says nothing.
 */

#include <string.h>

#include "cuda_internal.h"

/* Slept to, then spun from: the sleep may end late by less than this. */
#define SPIN_NS 2000000u

struct place {
    CUmemorytype type;
    uint64_t address; /* or the array's handle */
};

#define HOST(pointer) ((struct place){ CU_MEMORYTYPE_HOST, (uintptr_t)(pointer) })
#define DEVICE(pointer) ((struct place){ CU_MEMORYTYPE_DEVICE, (pointer) })
#define ARRAY(handle) ((struct place){ CU_MEMORYTYPE_ARRAY, (uintptr_t)(handle) })
#define UNIFIED(pointer) ((struct place){ CU_MEMORYTYPE_UNIFIED, (pointer) })

/* Resolves a unified address to host or device, and checks that `span` bytes can be there. An
 * array's size is not known. */
static CUresult place_resolve(struct place *place, uint64_t span)
{
    enum block_state state = blocks_state(place->address, span);
    if (place->type == CU_MEMORYTYPE_UNIFIED && state == BLOCK_LIVE)
        place->type = CU_MEMORYTYPE_DEVICE;
    else if (place->type == CU_MEMORYTYPE_UNIFIED)
        place->type = CU_MEMORYTYPE_HOST;
    bool valid = place->type == CU_MEMORYTYPE_HOST     ? place->address && state == BLOCK_NONE
                 : place->type == CU_MEMORYTYPE_DEVICE ? state == BLOCK_LIVE
                 : place->type == CU_MEMORYTYPE_ARRAY  ? place->address != 0
                                                       : false;
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult order_check(struct order order, bool *captured)
{
    struct CUstream_st *stream;
    *captured = false;
    if (order.blocking)
        return CUDA_SUCCESS;
    CUresult error = stream_resolve(order.stream, order.null_stream, &stream);
    if (!error)
        *captured = stream_capture_node(stream);
    return error;
}

bool order_is_told(struct order order, struct activity *activity)
{
    CUcontext context;
    struct CUstream_st *stream;
    if (!activity_is_wanted() || context_current(&context) ||
        stream_resolve(order.stream, order.null_stream, &stream))
        return false;
    *activity = (struct activity){ .device = (uint32_t)context->device,
                                   .context = context->number,
                                   .stream = stream_number(stream),
                                   .asynchronous = !order.blocking };
    return true;
}

/* From and to host, device and array, in the order of CUmemorytype. */
static const uint8_t copy_kinds[3][3] = {
    { 9, 1, 3 },
    { 2, 8, 7 },
    { 4, 6, 5 },
};

static void tell(struct place dst, struct place src, uint64_t bytes, uint64_t start_ns,
                 struct order order)
{
    static const uint8_t memory_kinds[] = { 1, 3, 4 }; /* pageable, device, array */
    struct activity activity;
    if (!order_is_told(order, &activity))
        return;
    int from = src.type - CU_MEMORYTYPE_HOST, to = dst.type - CU_MEMORYTYPE_HOST;
    activity.kind = ACTIVITY_MEMCPY;
    activity.copy_kind = copy_kinds[from][to];
    activity.source_kind = memory_kinds[from];
    activity.destination_kind = memory_kinds[to];
    activity.bytes = bytes;
    /* A synchronous one has taken its time. */
    activity.duration_ns = settings.copy_bytes_per_ns > 0
                               ? (uint64_t)((double)bytes / settings.copy_bytes_per_ns)
                               : now_ns() - start_ns;
    if (order.source_peer && order.source_peer->device != order.destination_peer->device) {
        activity.kind = ACTIVITY_MEMCPY2;
        activity.copy_kind = 10;
        activity.source_device = (uint32_t)order.source_peer->device;
        activity.source_context = order.source_peer->number;
        activity.destination_device = (uint32_t)order.destination_peer->device;
        activity.destination_context = order.destination_peer->number;
    }
    activity_tell(activity);
}

static void take_time(uint64_t start_ns, uint64_t bytes)
{
    if (settings.copy_bytes_per_ns <= 0)
        return;
    uint64_t duration_ns = (uint64_t)((double)bytes / settings.copy_bytes_per_ns);
    uint64_t end_ns = start_ns + duration_ns;
    if (duration_ns > SPIN_NS) {
        uint64_t wake_ns = end_ns - SPIN_NS;
        struct timespec wake = { (time_t)(wake_ns / 1000000000u), (long)(wake_ns % 1000000000u) };
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL))
            continue;
    }
    spin_until_ns(end_ns);
}

/* `bytes` are transferred; at either place they lie within its span. */
static CUresult transfer(struct place dst, uint64_t dst_span, struct place src, uint64_t src_span,
                         uint64_t bytes, struct order order)
{
    uint64_t start_ns = now_ns();
    CUresult error = CUDA_SUCCESS;
    if (bytes) {
        error = place_resolve(&dst, dst_span);
        if (!error)
            error = place_resolve(&src, src_span);
    }
    bool captured = false;
    if (!error)
        error = order_check(order, &captured);
    if (error || !bytes || captured)
        return error;
    bool from_host = src.type == CU_MEMORYTYPE_HOST, to_host = dst.type == CU_MEMORYTYPE_HOST;
    if (order.blocking && from_host != to_host)
        take_time(start_ns, bytes);
    tell(dst, src, bytes, start_ns, order);
    if (from_host && to_host && dst_span == bytes && src_span == bytes)
        memmove((void *)dst.address, (const void *)src.address, bytes);
    return CUDA_SUCCESS;
}

static CUresult copy(struct place dst, struct place src, uint64_t bytes, struct order order)
{
    return transfer(dst, bytes, src, bytes, bytes, order);
}

/* One side of a copy of rows. */
struct rows {
    CUmemorytype type;
    uint64_t host, device, array;
    uint64_t x_bytes, y, z;
    uint64_t pitch, height;
};

struct box {
    uint64_t width_bytes, height, depth;
};

/* Where a copy of `box` begins at `rows`, and over how many bytes it reaches. */
static bool rows_place(const struct rows *rows, struct box box, struct place *place, uint64_t *span)
{
    uint64_t last_row = box.height - 1 + (box.depth - 1) * rows->height;
    bool packed = box.height == 1 && box.depth == 1;
    if (rows->type == CU_MEMORYTYPE_ARRAY) {
        *place = (struct place){ rows->type, rows->array };
        *span = 1;
        return true;
    }
    if (!packed && rows->x_bytes + box.width_bytes > rows->pitch)
        return false;
    if (box.depth > 1 && rows->y + box.height > rows->height)
        return false;
    uint64_t base = rows->type == CU_MEMORYTYPE_HOST ? rows->host : rows->device;
    base += rows->x_bytes + (rows->y + rows->z * rows->height) * rows->pitch;
    *place = (struct place){ rows->type, base };
    *span = last_row * rows->pitch + box.width_bytes;
    return true;
}

static CUresult copy_rows(const struct rows *dst, const struct rows *src, struct box box,
                          struct order order)
{
    struct place to = { 0, 0 }, from = { 0, 0 };
    uint64_t to_span = 0, from_span = 0;
    uint64_t bytes = box.width_bytes * box.height * box.depth;
    if (bytes && (!rows_place(dst, box, &to, &to_span) || !rows_place(src, box, &from, &from_span)))
        return CUDA_ERROR_INVALID_VALUE;
    return transfer(to, to_span, from, from_span, bytes, order);
}

#define SIDE(copy, side, height_, z_)                                                    \
    {                                                                                    \
        (copy)->side##MemoryType, (uintptr_t)(copy)->side##Host, (copy)->side##Device,   \
            (uintptr_t)(copy)->side##Array, (copy)->side##XInBytes, (copy)->side##Y, z_, \
            (copy)->side##Pitch, height_                                                 \
    }

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, struct order order)
{
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    struct rows dst = SIDE(copy, dst, 0, 0), src = SIDE(copy, src, 0, 0);
    return copy_rows(&dst, &src, (struct box){ copy->WidthInBytes, copy->Height, 1 }, order);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, struct order order)
{
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    struct rows dst = SIDE(copy, dst, copy->dstHeight, copy->dstZ);
    struct rows src = SIDE(copy, src, copy->srcHeight, copy->srcZ);
    return copy_rows(&dst, &src, (struct box){ copy->WidthInBytes, copy->Height, copy->Depth },
                     order);
}

static CUresult copy_peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                          CUcontext src_context, size_t bytes, struct order order)
{
    CUresult error = context_check(dst_context);
    if (!error)
        error = context_check(src_context);
    order.destination_peer = dst_context;
    order.source_peer = src_context;
    return error ? error : copy(DEVICE(dst), DEVICE(src), bytes, order);
}

/* The real function does not take the legacy stream either. `failed` may be NULL; SIZE_MAX in it
 * means that no single copy failed. */
static CUresult copy_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
                           size_t count, const size_t *attribute_indexes, size_t attribute_count,
                           size_t *failed, struct order order)
{
    if (failed)
        *failed = SIZE_MAX;
    CUstream stream = order.stream ? order.stream : order.null_stream;
    if (!dsts || !srcs || !sizes || !count || stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    if (!attribute_count || attribute_count > count || !attribute_indexes || attribute_indexes[0])
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult error = copy(UNIFIED(dsts[i]), UNIFIED(srcs[i]), sizes[i], order);
        if (error) {
            if (failed)
                *failed = i;
            return error;
        }
    }
    return CUDA_SUCCESS;
}

static struct place operand_of(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? ARRAY(operand->op.array.array)
                                                         : UNIFIED(operand->op.ptr.ptr);
}

/* All operations of a batch, or none after the first that fails. */
static CUresult copy_cuboids(size_t count, const CUDA_MEMCPY3D_BATCH_OP *cuboids, size_t *failed,
                             struct order order)
{
    CUstream stream = order.stream ? order.stream : order.null_stream;
    if (!count || !cuboids || stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const CUmemcpy3DOperand *dst = &cuboids[i].dst, *src = &cuboids[i].src;
        const CUextent3D *extent = &cuboids[i].extent;
        size_t elements = extent->width * extent->height * extent->depth;
        CUresult error = elements ? copy(operand_of(dst), operand_of(src), elements, order)
                                  : CUDA_ERROR_INVALID_VALUE;
        if (error) {
            if (failed)
                *failed = i;
            return error;
        }
    }
    return CUDA_SUCCESS;
}

/* Pages of managed memory; any block will do here. */
static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation to, struct order order)
{
    bool captured, on_device = to.type == CU_MEM_LOCATION_TYPE_DEVICE && is_device(to.id);
    if (to.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
        on_device = is_device(to.localized.deviceId);
    if (!on_device && to.type != CU_MEM_LOCATION_TYPE_HOST &&
        to.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_INVALID_VALUE;
    if (!bytes || blocks_state(address, bytes) != BLOCK_LIVE)
        return CUDA_ERROR_INVALID_VALUE;
    return order_check(order, &captured);
}

static CUmemLocation location_of(CUdevice device)
{
    return (CUmemLocation){ device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST
                                                    : CU_MEM_LOCATION_TYPE_DEVICE,
                            { device } };
}

/* locations[k] is that of the prefetches from indexes[k] on. */
static CUresult prefetch_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                               const CUmemLocation *locations, const size_t *indexes,
                               size_t location_count, unsigned long long flags, struct order order)
{
    CUstream stream = order.stream ? order.stream : order.null_stream;
    size_t location = 0;
    if (!addresses || !sizes || !count || flags || stream == CU_STREAM_LEGACY || !locations ||
        !indexes || indexes[0] || !location_count || location_count > count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (location + 1 < location_count && indexes[location + 1] == i)
            location++;
        CUresult error = prefetch(addresses[i], sizes[i], locations[location], order);
        if (error)
            return error;
    }
    return CUDA_SUCCESS;
}

DEFINE_TWINS(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes),
             copy(UNIFIED(dst), UNIFIED(src), bytes, BLOCKING))
DEFINE_TWINS(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dst, const void *src, size_t bytes),
             copy(DEVICE(dst), HOST(src), bytes, BLOCKING))
DEFINE_TWINS(cuMemcpyDtoH_v2, _ptds, (void *dst, CUdeviceptr src, size_t bytes),
             copy(HOST(dst), DEVICE(src), bytes, BLOCKING))
DEFINE_TWINS(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes),
             copy(DEVICE(dst), DEVICE(src), bytes, BLOCKING))
DEFINE_TWINS(cuMemcpyHtoA_v2, _ptds, (CUarray dst, size_t offset, const void *src, size_t bytes),
             ((void)offset, copy(ARRAY(dst), HOST(src), bytes, BLOCKING)))
DEFINE_TWINS(cuMemcpyAtoH_v2, _ptds, (void *dst, CUarray src, size_t offset, size_t bytes),
             ((void)offset, copy(HOST(dst), ARRAY(src), bytes, BLOCKING)))
DEFINE_TWINS(cuMemcpyDtoA_v2, _ptds, (CUarray dst, size_t offset, CUdeviceptr src, size_t bytes),
             ((void)offset, copy(ARRAY(dst), DEVICE(src), bytes, BLOCKING)))
DEFINE_TWINS(cuMemcpyAtoD_v2, _ptds, (CUdeviceptr dst, CUarray src, size_t offset, size_t bytes),
             ((void)offset, copy(DEVICE(dst), ARRAY(src), bytes, BLOCKING)))
DEFINE_TWINS(cuMemcpyAtoA_v2, _ptds,
             (CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes),
             ((void)dst_offset, (void)src_offset, copy(ARRAY(dst), ARRAY(src), bytes, BLOCKING)))
DEFINE_TWINS(cuMemcpyPeer, _ptds,
             (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
              size_t bytes),
             copy_peer(dst, dst_context, src, src_context, bytes, BLOCKING))
/* Named apart from the function `copy`, which the bodies call. */
DEFINE_TWINS(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *rows), copy_2d(rows, BLOCKING))
DEFINE_TWINS(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *rows), copy_2d(rows, BLOCKING))
DEFINE_TWINS(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *rows), copy_3d(rows, BLOCKING))

DEFINE_TWINS(cuMemcpyAsync, _ptsz,
             (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
             copy(UNIFIED(dst), UNIFIED(src), bytes, ON(stream)))
DEFINE_TWINS(cuMemcpyHtoDAsync_v2, _ptsz,
             (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream),
             copy(DEVICE(dst), HOST(src), bytes, ON(stream)))
DEFINE_TWINS(cuMemcpyDtoHAsync_v2, _ptsz,
             (void *dst, CUdeviceptr src, size_t bytes, CUstream stream),
             copy(HOST(dst), DEVICE(src), bytes, ON(stream)))
DEFINE_TWINS(cuMemcpyDtoDAsync_v2, _ptsz,
             (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
             copy(DEVICE(dst), DEVICE(src), bytes, ON(stream)))
DEFINE_TWINS(cuMemcpyHtoAAsync_v2, _ptsz,
             (CUarray dst, size_t offset, const void *src, size_t bytes, CUstream stream),
             ((void)offset, copy(ARRAY(dst), HOST(src), bytes, ON(stream))))
DEFINE_TWINS(cuMemcpyAtoHAsync_v2, _ptsz,
             (void *dst, CUarray src, size_t offset, size_t bytes, CUstream stream),
             ((void)offset, copy(HOST(dst), ARRAY(src), bytes, ON(stream))))
DEFINE_TWINS(cuMemcpyPeerAsync, _ptsz,
             (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
              size_t bytes, CUstream stream),
             copy_peer(dst, dst_context, src, src_context, bytes, ON(stream)))
DEFINE_TWINS(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *rows, CUstream stream),
             copy_2d(rows, ON(stream)))
DEFINE_TWINS(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *rows, CUstream stream),
             copy_3d(rows, ON(stream)))
DEFINE_TWINS(cuMemcpyBatchAsync, _ptsz,
             (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
              CUmemcpyAttributes *attributes, size_t *attribute_indexes, size_t attribute_count,
              size_t *failed_index, CUstream stream),
             attributes ? copy_batch(dsts, srcs, sizes, count, attribute_indexes, attribute_count,
                                     failed_index, ON(stream))
                        : CUDA_ERROR_INVALID_VALUE)
DEFINE_TWINS(cuMemcpyBatchAsync_v2, _ptsz,
             (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
              CUmemcpyAttributes *attributes, size_t *attribute_indexes, size_t attribute_count,
              CUstream stream),
             attributes ? copy_batch(dsts, srcs, sizes, count, attribute_indexes, attribute_count,
                                     NULL, ON(stream))
                        : CUDA_ERROR_INVALID_VALUE)
DEFINE_TWINS(cuMemcpy3DBatchAsync, _ptsz,
             (size_t count, CUDA_MEMCPY3D_BATCH_OP *cuboids, size_t *failed_index,
              unsigned long long flags, CUstream stream),
             flags ? CUDA_ERROR_INVALID_VALUE
                   : copy_cuboids(count, cuboids, failed_index, ON(stream)))
DEFINE_TWINS(cuMemcpy3DBatchAsync_v2, _ptsz,
             (size_t count, CUDA_MEMCPY3D_BATCH_OP *cuboids, unsigned long long flags,
              CUstream stream),
             flags ? CUDA_ERROR_INVALID_VALUE : copy_cuboids(count, cuboids, NULL, ON(stream)))
DEFINE_TWINS(cuMemcpyWithAttributesAsync, _ptsz,
             (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUmemcpyAttributes *attributes,
              CUstream stream),
             attributes ? copy(UNIFIED(dst), UNIFIED(src), bytes, ON(stream))
                        : CUDA_ERROR_INVALID_VALUE)
DEFINE_TWINS(cuMemcpy3DWithAttributesAsync, _ptsz,
             (CUDA_MEMCPY3D_BATCH_OP * cuboid, unsigned long long flags, CUstream stream),
             flags ? CUDA_ERROR_INVALID_VALUE : copy_cuboids(1, cuboid, NULL, ON(stream)))
DEFINE_TWINS(cuMemPrefetchAsync, _ptsz,
             (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
             prefetch(address, bytes, location_of(device), ON(stream)))
DEFINE_TWINS(cuMemPrefetchAsync_v2, _ptsz,
             (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
              CUstream stream),
             flags ? CUDA_ERROR_INVALID_VALUE : prefetch(address, bytes, location, ON(stream)))
#define PREFETCH_BATCH(symbol)                                                                 \
    DEFINE_TWINS(symbol, _ptsz,                                                                \
                 (CUdeviceptr * addresses, size_t * sizes, size_t count,                       \
                  CUmemLocation * locations, size_t * location_indexes, size_t location_count, \
                  unsigned long long flags, CUstream stream),                                  \
                 prefetch_batch(addresses, sizes, count, locations, location_indexes,          \
                                location_count, flags, ON(stream)))
PREFETCH_BATCH(cuMemPrefetchBatchAsync)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync)
