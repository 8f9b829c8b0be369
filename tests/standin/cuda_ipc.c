/*
 * Stand-in libcuda: device memory of another process.
 *
 * The handle has, as the real one was seen to have, the exporter's PID in bytes
 * 8 to 11 and the size of the allocation in bytes 16 to 23; and one allocation
 * has one handle, whichever of its addresses is asked about.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_internal.h"

#define IPC_MAGIC 0x4350494e49444e41ull

struct ipc_handle {
    uint64_t magic;
    int32_t pid, device;
    uint64_t bytes, address;
    uint64_t unused[4];
};

_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "it is all of the handle");
_Static_assert(offsetof(struct ipc_handle, pid) == 8, "where the driver has it");
_Static_assert(offsetof(struct ipc_handle, bytes) == 16, "where the driver has it");

/* Under `lock`. */
static struct opening {
    struct opening *next;
    struct ipc_handle handle;
    CUcontext owner;
    uint64_t address;
    size_t count;
} * openings;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    ENTER_CONTEXT();
    struct block_range range;
    /* Pool memory is shared in another way. */
    if (!handle || !blocks_find(address, &range) || handle_is(range.owner, HANDLE_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    struct ipc_handle made = { .magic = IPC_MAGIC,
                               .pid = getpid(),
                               .device = range.device,
                               .bytes = range.bytes,
                               .address = range.address };
    memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
}

/* Opened again, the same memory is at the same address. */
static CUresult open_handle(const struct ipc_handle *handle, CUcontext owner, CUdeviceptr *address)
{
    struct opening *opening = openings;
    while (opening && memcmp(&opening->handle, handle, sizeof *handle))
        opening = opening->next;
    if (!opening) {
        opening = calloc(1, sizeof *opening);
        uint64_t taken = opening ? space_take(handle->bytes, 0) : 0;
        if (!taken) {
            free(opening);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *opening = (struct opening){ openings, *handle, owner, taken, 0 };
        openings = opening;
    }
    opening->count++;
    *address = opening->address;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    ENTER_CONTEXT();
    struct ipc_handle given;
    memcpy(&given, &handle, sizeof given);
    if (!address || flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || given.magic != IPC_MAGIC ||
        !given.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (given.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    CUresult error = open_handle(&given, context, address);
    pthread_mutex_unlock(&lock);
    return error;
}

static void opening_end(struct opening **link)
{
    struct opening *opening = *link;
    *link = opening->next;
    space_release(opening->address, opening->handle.bytes);
    free(opening);
}

void ipc_release_owned(CUcontext context)
{
    pthread_mutex_lock(&lock);
    for (struct opening **link = &openings; *link;) {
        if ((*link)->owner == context)
            opening_end(link);
        else
            link = &(*link)->next;
    }
    pthread_mutex_unlock(&lock);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    ENTER_INITIALIZED();
    pthread_mutex_lock(&lock);
    struct opening **link = &openings;
    while (*link && (*link)->address != address)
        link = &(*link)->next;
    struct opening *opening = *link;
    bool known = opening != NULL;
    if (known && --opening->count == 0)
        opening_end(link);
    pthread_mutex_unlock(&lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
