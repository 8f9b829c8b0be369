/* Stand-in libcuda: memory of other APIs, imported by a file descriptor that the driver then
 * owns. */
#include <unistd.h>

#include "cuda_internal.h"

struct CUextMemory_st {
    struct handle handle;
    uint64_t bytes;
    int fd;
};

/* Owns the buffers, which outlive the memory object and every context. */
static const char mapped_buffers;

CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    ENTER_CONTEXT();
    if (!memory || !description || !description->size ||
        description->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || description->handle.fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUexternalMemory taken = handle_take(HANDLE_EXTERNAL);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    taken->bytes = description->size;
    taken->fd = description->handle.fd;
    *memory = taken;
    return CUDA_SUCCESS;
}

/* The buffer is freed by cuMemFree. */
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *description)
{
    ENTER_CONTEXT();
    uint64_t taken;
    if (!handle_is(memory, HANDLE_EXTERNAL))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!address || !description || !description->size || description->offset > memory->bytes ||
        description->size > memory->bytes - description->offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (!blocks_take(&mapped_buffers, context->device, description->size, &taken))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = taken;
    return CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    ENTER_INITIALIZED();
    if (!handle_is(memory, HANDLE_EXTERNAL))
        return CUDA_ERROR_INVALID_HANDLE;
    int fd = memory->fd;
    handle_release(memory);
    close(fd);
    return CUDA_SUCCESS;
}
