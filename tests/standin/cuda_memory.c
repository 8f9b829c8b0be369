/* Stand-in libcuda: device memory. */
#include <time.h>

#include "cuda_blocks.h"
#include "cuda_internal.h"

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

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Spins rather than sleeps: the thread must stay on its CPU, inside the call,
 * while another allocates the address that it has just released. */
static void linger(uint64_t duration_ns)
{
    uint64_t end = now_ns() + duration_ns;
    while (now_ns() < end)
        continue;
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
