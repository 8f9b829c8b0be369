/*
 * Stand-in libcudart.so.12 and libcudart_static.a.
 *
 * Which driver calls a runtime call makes, and when, follows what was seen of
 * the real runtime: a device's primary context is retained once a process, its
 * device is asked for on the context's first use, cudaSetDevice makes the
 * context current each time, and cudaFree(NULL) creates the context but frees
 * nothing.
 *
 * Kernels are in cudart_launch.c, streams and graphs in cudart_stream.c, copies
 * in cudart_copy.c.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cudart_internal.h"

#define MAX_DEVICES 64

static struct device {
    _Atomic(CUcontext) context; /* NULL until retained */
    /* Counts cudaDeviceReset, so that other threads notice one. */
    atomic_uint resets;
} devices[MAX_DEVICES];

static pthread_mutex_t retain_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local struct thread {
    int device;
    bool bound; /* a context is current, as of `resets` of its device */
    unsigned int resets;
    cudaError_t call_error; /* of the call that is being made */
} thread;

cudaError_t runtime_record(cudaError_t error)
{
    thread.call_error = error;
    return error;
}

void runtime_enter(struct activity_call *call, const char *function)
{
    thread.call_error = cudaSuccess;
    call->function = NULL;
    if (driver.activity_enter)
        driver.activity_enter(call, ACTIVITY_RUNTIME, function);
}

void runtime_leave(struct activity_call *call)
{
    call->returned = thread.call_error;
    if (call->function)
        driver.activity_leave(call);
}

cudaError_t runtime_context(int device, CUcontext *context)
{
    if (device < 0 || device >= MAX_DEVICES)
        return cudaErrorInvalidDevice;
    struct device *entry = &devices[device];
    cudaError_t error = cudaSuccess;
    *context = atomic_load(&entry->context);
    if (*context)
        return cudaSuccess;
    pthread_mutex_lock(&retain_lock);
    *context = atomic_load(&entry->context);
    if (!*context) {
        int same_device;
        error = driver.primary_retain(context, device);
        if (!error)
            error = driver.get_device(&same_device, *context);
        if (!error)
            atomic_store(&entry->context, *context);
    }
    pthread_mutex_unlock(&retain_lock);
    return error;
}

/* Makes `device` the thread's, with its primary context current. */
static cudaError_t bind_device(int device)
{
    CUcontext context;
    unsigned int resets = atomic_load(&devices[device].resets);
    cudaError_t error = runtime_context(device, &context);
    if (!error)
        error = driver.set_current(context);
    if (error)
        return error;
    thread.device = device;
    thread.resets = resets;
    thread.bound = true;
    return cudaSuccess;
}

/* The thread has had a context since its device was last reset. */
static bool is_bound(void)
{
    return thread.bound && thread.resets == atomic_load(&devices[thread.device].resets);
}

cudaError_t runtime_bind_thread(void)
{
    if (is_bound())
        return cudaSuccess;
    CUcontext current = NULL;
    if (!thread.bound) {
        int device;
        cudaError_t error = driver.get_current(&current);
        if (!error && current)
            error = driver.get_device(&device, current);
        if (error)
            return error;
        if (current) {
            thread.device = device;
            thread.resets = atomic_load(&devices[device].resets);
            thread.bound = true;
            return cudaSuccess;
        }
    }
    return bind_device(thread.device);
}

cudaError_t cudaMalloc(void **address, size_t bytes)
{
    ENTER();
    cudaError_t error = runtime_bind_thread();
    if (error)
        return runtime_record(error);
    if (!address)
        return runtime_record(cudaErrorInvalidValue);
    if (bytes == 0) {
        *address = NULL;
        return cudaSuccess;
    }
    CUdeviceptr allocated;
    error = driver.mem_alloc(&allocated, bytes);
    if (error)
        return runtime_record(error);
    *address = (void *)allocated;
    return cudaSuccess;
}

DEFINE(cudaFree, (void *address), address ? driver.mem_free((CUdeviceptr)address) : cudaSuccess)
DEFINE(cudaHostAlloc, (void **address, size_t bytes, unsigned int flags),
       driver.host_alloc(address, bytes, flags))
DEFINE(cudaMallocHost, (void **address, size_t bytes), driver.host_alloc(address, bytes, 0))
DEFINE(cudaFreeHost, (void *address), address ? driver.host_free(address) : cudaSuccess)
DEFINE(cudaMemGetInfo, (size_t * free_bytes, size_t *total_bytes),
       driver.mem_get_info(free_bytes, total_bytes))
DEFINE(cudaDeviceSynchronize, (void), driver.synchronize())

cudaError_t cudaSetDevice(int device)
{
    ENTER();
    int count;
    cudaError_t error = driver.device_get_count(&count);
    if (!error && (device < 0 || device >= count || device >= MAX_DEVICES))
        error = cudaErrorInvalidDevice;
    if (!error)
        error = bind_device(device);
    return runtime_record(error);
}

cudaError_t cudaGetDevice(int *device)
{
    ENTER();
    if (!device)
        return runtime_record(cudaErrorInvalidValue);
    CUcontext current = NULL;
    cudaError_t error = is_bound() ? driver.get_current(&current) : cudaSuccess;
    if (!error && current)
        return runtime_record(driver.get_device(device, current));
    if (!error)
        *device = thread.device;
    return runtime_record(error);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER();
    if (!count)
        return runtime_record(cudaErrorInvalidValue);
    return runtime_record(driver.device_get_count(count));
}

cudaError_t cudaDeviceReset(void)
{
    ENTER();
    struct device *entry = &devices[thread.device];
    /* No lock across the driver's call: a program that resets a device while
     * another thread first uses it has no defined result anyway. */
    cudaError_t error = driver.primary_reset(thread.device);
    if (!error) {
        atomic_store(&entry->context, NULL);
        atomic_fetch_add(&entry->resets, 1);
    }
    return runtime_record(error);
}
