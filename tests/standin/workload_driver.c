/* Backend: the driver API, linked with libcuda.so.1. */
#include <pthread.h>

#include "workload_driver.h"

#define MAX_DEVICES 16

static bool create_contexts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[MAX_DEVICES]; /* NULL until used; under `lock` */

/* A context that cuCtxCreate makes is pushed on the calling thread's stack;
 * popping it lets every thread select contexts in the same way. */
static int make_context(CUcontext *context, int device)
{
    if (!create_contexts)
        return cuDevicePrimaryCtxRetain(context, device);
    int error = cuCtxCreate_v2(context, 0, device);
    return error ? error : cuCtxPopCurrent_v2(NULL);
}

int driver_context(int device, CUcontext *context)
{
    if (device < 0 || device >= MAX_DEVICES)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    int error = contexts[device] ? CUDA_SUCCESS : make_context(&contexts[device], device);
    *context = contexts[device];
    pthread_mutex_unlock(&lock);
    return error;
}

static int driver_set_device(int device)
{
    CUcontext context;
    int error = driver_context(device, &context);
    return error ? error : cuCtxSetCurrent(context);
}

/* References of the primary contexts beyond that of `contexts`; under `lock`. */
static unsigned int retained[MAX_DEVICES];

int driver_retain_primary(int device)
{
    CUcontext context;
    int error = cuDevicePrimaryCtxRetain(&context, device);
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    retained[device]++;
    pthread_mutex_unlock(&lock);
    return 0;
}

int driver_release_primary(int device, bool *ended)
{
    int error = cuDevicePrimaryCtxRelease_v2(device);
    *ended = false;
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    if (retained[device]) {
        retained[device]--;
    } else if (!create_contexts) {
        *ended = true;
        contexts[device] = NULL;
    }
    pthread_mutex_unlock(&lock);
    return *ended ? driver_set_device(device) : 0;
}

static int driver_enter_thread(void)
{
    return driver_set_device(0);
}

static int driver_start(bool create)
{
    create_contexts = create;
    int error = cuInit(0);
    return error ? error : driver_set_device(0);
}

static int driver_alloc(void **address, size_t bytes)
{
    CUdeviceptr allocated;
    int error = cuMemAlloc_v2(&allocated, bytes);
    if (!error)
        *address = (void *)allocated;
    return error;
}

static int driver_release(void *address)
{
    return cuMemFree_v2((CUdeviceptr)address);
}

static int driver_reset(void)
{
    int device;
    int error = cuCtxGetDevice(&device);
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    error =
        create_contexts ? cuCtxDestroy_v2(contexts[device]) : cuDevicePrimaryCtxReset_v2(device);
    if (!error) {
        contexts[device] = NULL;
        if (!create_contexts)
            retained[device] = 0;
    }
    pthread_mutex_unlock(&lock);
    return error ? error : driver_set_device(device);
}

struct api api = {
    .name = "driver",
    .start = driver_start,
    .enter_thread = driver_enter_thread,
    .alloc = driver_alloc,
    .release = driver_release,
    .set_device = driver_set_device,
    .get_device = cuCtxGetDevice,
    .device_count = cuDeviceGetCount,
    .memory = cuMemGetInfo_v2,
    .synchronize = cuCtxSynchronize,
    .reset = driver_reset,
    .work = &driver_work,
    .kinds = &driver_memory,
    .pools = &driver_pools,
};
