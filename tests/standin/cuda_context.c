/* Stand-in libcuda: contexts, and the stack of them that each thread has. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_internal.h"

_Thread_local struct thread_state thread_state;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Every context ever made. Nodes are published once and never removed, so
 * readers walk the list without the lock. */
static _Atomic(struct CUctx_st *) contexts;
static struct CUctx_st *primary[MAX_DEVICES];

static struct CUctx_st *context_new(CUdevice device, bool is_primary)
{
    struct CUctx_st *context = calloc(1, sizeof *context);
    if (!context) {
        fputs("stand-in CUDA: no host memory for a context\n", stderr);
        abort();
    }
    context->device = device;
    context->primary = is_primary;
    atomic_init(&context->active, !is_primary);
    pthread_mutex_lock(&lock);
    context->next = atomic_load(&contexts);
    context->number = context->next ? context->next->number + 1 : 1;
    atomic_store(&contexts, context);
    pthread_mutex_unlock(&lock);
    return context;
}

static void tell(const struct CUctx_st *context)
{
    if (activity_is_wanted())
        activity_tell((struct activity){ .kind = ACTIVITY_CONTEXT,
                                         .device = (uint32_t)context->device,
                                         .context = context->number });
}

void contexts_tell(void)
{
    for (struct CUctx_st *known = atomic_load(&contexts); known; known = known->next)
        if (atomic_load(&known->active))
            tell(known);
}

void contexts_setup(void)
{
    for (int device = 0; device < settings.devices; device++)
        primary[device] = context_new(device, true);
}

CUresult context_check(CUcontext context)
{
    for (struct CUctx_st *known = atomic_load(&contexts); known; known = known->next)
        if (known == context)
            return atomic_load(&known->active) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult context_current(CUcontext *context)
{
    struct thread_state *thread = &thread_state;
    if (thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = thread->stack[thread->depth - 1];
    bool active = atomic_load_explicit(&(*context)->active, memory_order_acquire);
    if ((*context)->whole)
        *context = (*context)->whole;
    return active ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult push(CUcontext context)
{
    struct thread_state *thread = &thread_state;
    if (thread->depth == CONTEXT_STACK_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    thread->stack[thread->depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    primary[device]->retained++;
    bool is_new = !atomic_exchange(&primary[device]->active, true);
    pthread_mutex_unlock(&lock);
    if (is_new)
        tell(primary[device]);
    *context = primary[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER_INITIALIZED();
    return context ? retain(context, device) : CUDA_ERROR_INVALID_VALUE;
}

/* Destroying a context frees what it owns: no free is called for its blocks, and no unload for its
 * modules. */
static void deactivate(struct CUctx_st *context)
{
    activity_tell_end(context->number);
    atomic_store(&context->active, false);
    blocks_release_owned(context);
    arrays_release_owned(context);
    host_release_owned(context);
    ipc_release_owned(context);
    modules_release_owned(context);
    streams_release_owned(context);
}

static CUresult release(CUdevice device)
{
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (primary[device]->retained == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--primary[device]->retained == 0)
        deactivate(primary[device]);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER_INITIALIZED();
    return release(device);
}

struct CUgreenCtx_st {
    CUcontext context;
};

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                          unsigned int flags)
{
    ENTER_INITIALIZED();
    CUcontext whole;
    if (!green || !resources || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult error = retain(&whole, device);
    if (error)
        return error;
    *green = calloc(1, sizeof **green);
    (*green)->context = context_new(device, false);
    (*green)->context->whole = whole;
    return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    ENTER_INITIALIZED();
    if (!context || !green)
        return CUDA_ERROR_INVALID_VALUE;
    *context = green->context;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    ENTER_INITIALIZED();
    if (!green)
        return CUDA_ERROR_INVALID_VALUE;
    if (!atomic_exchange(&green->context->active, false))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return release(green->context->device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    ENTER_INITIALIZED();
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    primary[device]->retained = 0;
    deactivate(primary[device]);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *context, CUdevice device)
{
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (thread_state.depth == CONTEXT_STACK_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    *context = context_new(device, false);
    tell(*context);
    return push(*context);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    ENTER_INITIALIZED();
    (void)flags;
    return create(context, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinity_count,
                        unsigned int flags, CUdevice device)
{
    ENTER_INITIALIZED();
    (void)affinity, (void)affinity_count, (void)flags;
    return create(context, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                        CUdevice device)
{
    ENTER_INITIALIZED();
    (void)params, (void)flags;
    return create(context, device);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    ENTER_INITIALIZED();
    CUresult result = context_check(context);
    if (result)
        return result;
    if (context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    deactivate(context);
    struct thread_state *thread = &thread_state;
    if (thread->depth && thread->stack[thread->depth - 1] == context)
        thread->depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER_INITIALIZED();
    struct thread_state *thread = &thread_state;
    if (!context) {
        if (thread->depth)
            thread->depth--;
        return CUDA_SUCCESS;
    }
    CUresult result = context_check(context);
    if (result)
        return result;
    if (thread->depth == 0)
        return push(context);
    thread->stack[thread->depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    ENTER_INITIALIZED();
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    struct thread_state *thread = &thread_state;
    *context = thread->depth ? thread->stack[thread->depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER_INITIALIZED();
    CUresult result = context_check(context);
    return result ? result : push(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    ENTER_INITIALIZED();
    struct thread_state *thread = &thread_state;
    if (thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->depth--;
    if (context)
        *context = thread->stack[thread->depth];
    return CUDA_SUCCESS;
}

static CUresult device_of(CUdevice *device, CUcontext context)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context ? context_check(context) : context_current(&context);
    if (result == CUDA_SUCCESS)
        *device = context->device;
    return result;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    ENTER_INITIALIZED();
    return device_of(device, NULL);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    ENTER_INITIALIZED();
    return device_of(device, context);
}

CUresult cuCtxSynchronize(void)
{
    ENTER_INITIALIZED();
    CUcontext context;
    CUresult error = context_current(&context);
    if (!error && activity_is_wanted())
        activity_tell((struct activity){
            .kind = ACTIVITY_SYNC, .context = context->number, .stream = UINT32_MAX, .wait = 4 });
    return error;
}
