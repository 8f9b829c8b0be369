/* Stand-in libcuda: device memory, and pinned host memory. */
#include <pthread.h>
#include <stdlib.h>

#include "cuda_blocks.h"
#include "cuda_clock.h"
#include "cuda_internal.h"

#define PAGE_BYTES 4096

void standin_longjmp_arm(jmp_buf *target)
{
    thread_state.jump_target = target;
}

static void jump_if_armed(void)
{
    jmp_buf *target = thread_state.jump_target;
    if (!target)
        return;
    thread_state.jump_target = NULL;
    longjmp(*target, 1);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    ENTER_INITIALIZED();
    jump_if_armed();
    CUcontext context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (!address || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t taken;
    if (!blocks_take(context, context->device, bytes, &taken))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = taken;
    return CUDA_SUCCESS;
}

/* Spins rather than sleeps: the thread must stay on its CPU, inside the call,
 * while another allocates the address that it has just released. */
static void linger(uint64_t duration_ns)
{
    spin_until_ns(now_ns() + duration_ns);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER_INITIALIZED();
    CUcontext context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (address == 0)
        return CUDA_SUCCESS;
    if (!blocks_release(address))
        return CUDA_ERROR_INVALID_VALUE;
    if (settings.free_linger_ns)
        linger(settings.free_linger_ns);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ENTER_INITIALIZED();
    CUcontext context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (free_bytes)
        *free_bytes = blocks_left(context->device);
    if (total_bytes)
        *total_bytes = settings.device_bytes;
    return CUDA_SUCCESS;
}

/* Ordinary memory, listed so that a free of something else is an error. */
struct pinned {
    struct pinned *next;
    void *address;
};

static struct pinned *pinned; /* under `pinned_lock` */
static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags)
{
    ENTER_INITIALIZED();
    CUcontext context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (!address || bytes == 0 || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    struct pinned *block = malloc(sizeof *block);
    if (!block || posix_memalign(&block->address, PAGE_BYTES, bytes)) {
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&pinned_lock);
    block->next = pinned;
    pinned = block;
    pthread_mutex_unlock(&pinned_lock);
    *address = block->address;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *address)
{
    ENTER_INITIALIZED();
    pthread_mutex_lock(&pinned_lock);
    struct pinned **link = &pinned;
    while (*link && (*link)->address != address)
        link = &(*link)->next;
    struct pinned *block = *link;
    if (block)
        *link = block->next;
    pthread_mutex_unlock(&pinned_lock);
    if (!block)
        return CUDA_ERROR_INVALID_VALUE;
    free(block->address);
    free(block);
    return CUDA_SUCCESS;
}
