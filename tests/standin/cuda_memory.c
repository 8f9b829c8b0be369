/* Stand-in libcuda: device memory that cuMemFree_v2 frees. Host memory is in cuda_host.c, arrays in
 * cuda_array.c, the variables of modules in cuda_variables.c. */
#include "cuda_internal.h"

#define PITCH_STEP 512

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
    activity_forget();
    longjmp(*target, 1);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    ENTER_CONTEXT();
    jump_if_armed();
    if (!address || bytes == 0)
        return this_call.returned = CUDA_ERROR_INVALID_VALUE;
    uint64_t taken;
    if (!blocks_take(context, context->device, bytes, &taken))
        return this_call.returned = CUDA_ERROR_OUT_OF_MEMORY;
    *address = taken;
    tell_memory(false, MEMORY_DEVICE, taken, bytes, false);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes)
{
    ENTER_CONTEXT();
    if (!address || !pitch || width == 0 || height == 0 ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return this_call.returned = CUDA_ERROR_INVALID_VALUE;
    size_t row, bytes;
    uint64_t taken;
    if (__builtin_add_overflow(width, PITCH_STEP - 1, &row))
        return this_call.returned = CUDA_ERROR_OUT_OF_MEMORY;
    row -= row % PITCH_STEP;
    if (__builtin_mul_overflow(row, height, &bytes) ||
        !blocks_take(context, context->device, bytes, &taken))
        return this_call.returned = CUDA_ERROR_OUT_OF_MEMORY;
    *address = taken;
    *pitch = row;
    tell_memory(false, MEMORY_DEVICE, taken, bytes, false);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    ENTER_CONTEXT();
    if (!address || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return this_call.returned = CUDA_ERROR_INVALID_VALUE;
    uint64_t taken;
    if (!blocks_take(context, context->device, bytes, &taken))
        return this_call.returned = CUDA_ERROR_OUT_OF_MEMORY;
    *address = taken;
    tell_memory(false, MEMORY_MANAGED, taken, bytes, false);
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
    ENTER_CONTEXT();
    if (address == 0)
        return CUDA_SUCCESS;
    if (!memory_release(address, false))
        return this_call.returned = CUDA_ERROR_INVALID_VALUE;
    if (settings.free_linger_ns)
        linger(settings.free_linger_ns);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ENTER_CONTEXT();
    if (free_bytes)
        *free_bytes = blocks_left(context->device);
    if (total_bytes)
        *total_bytes = settings.device_bytes;
    return CUDA_SUCCESS;
}
