/* Stand-in libcuda: stream-ordered allocation, and pools that other processes import. On a captured
 * stream nothing runs: the call becomes a node. */
#include <string.h>
#include <unistd.h>

#include "cuda_internal.h"

static CUresult allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUcontext context,
                         CUstream stream, CUstream null_stream)
{
    struct CUstream_st *resolved;
    if (!address || !bytes || !pool_is(pool) || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult error = stream_resolve(stream, null_stream, &resolved);
    if (error)
        return error;
    struct CUgraph_st *graph = stream_capture(resolved);
    if (graph)
        return graph_add_allocation(graph, context->device, bytes, address);
    error = pool_take(pool, bytes, address);
    if (!error)
        tell_memory(false, MEMORY_DEVICE, *address, bytes, true);
    return error;
}

static CUresult release(CUdeviceptr address, CUstream stream, CUstream null_stream)
{
    struct CUstream_st *resolved;
    CUresult error = stream_resolve(stream, null_stream, &resolved);
    if (error || !address)
        return error;
    struct CUgraph_st *graph = stream_capture(resolved);
    if (graph)
        return graph_add_free(graph, address);
    return memory_release(address, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DEFINE_TWINS(cuMemAllocAsync, _ptsz, (CUdeviceptr * address, size_t bytes, CUstream stream),
             allocate(address, bytes, pool_current(context->device), context, stream, null_stream))

DEFINE_TWINS(cuMemAllocFromPoolAsync, _ptsz,
             (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
             allocate(address, bytes, pool, context, stream, null_stream))

DEFINE_TWINS(cuMemFreeAsync, _ptsz, (CUdeviceptr address, CUstream stream),
             release(address, stream, null_stream))

CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool,
                                          CUmemAllocationHandleType type, unsigned long long flags)
{
    ENTER_INITIALIZED();
    if (!shareable || !pool_is(pool) || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    struct share share = {
        .kind = SHARE_POOL, .location_id = pool->device, .pid = getpid(), .handle = (uintptr_t)pool
    };
    int fd = share_export(&share);
    if (fd == -1)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    ENTER_INITIALIZED();
    struct share share;
    if (!pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !share_import((int)(intptr_t)shareable, SHARE_POOL, &share))
        return CUDA_ERROR_INVALID_VALUE;
    return pool_new(pool, share.location_id, true);
}

static const char pointer_magic[16] = "STANDIN POINTER";

struct pointer_data {
    char magic[16];
    uint64_t pid, address, bytes;
};

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
    ENTER_INITIALIZED();
    struct block_range range;
    if (!data || !blocks_find(address, &range) || !handle_is(range.owner, HANDLE_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    struct pointer_data pointer = { .pid = (uint64_t)getpid(),
                                    .address = range.address,
                                    .bytes = range.bytes };
    memcpy(pointer.magic, pointer_magic, sizeof pointer_magic);
    memset(data, 0, sizeof *data);
    memcpy(data, &pointer, sizeof pointer);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool,
                                CUmemPoolPtrExportData *data)
{
    ENTER_INITIALIZED();
    struct pointer_data pointer;
    if (!address || !data || !pool_is(pool) || !pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&pointer, data, sizeof pointer);
    if (memcmp(pointer.magic, pointer_magic, sizeof pointer_magic))
        return CUDA_ERROR_INVALID_VALUE;
    return pool_take(pool, pointer.bytes, address);
}
