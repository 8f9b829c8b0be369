/*
 * Stand-in libcuda: pools of stream-ordered memory. What a pool has reserved
 * grows in large steps and shrinks only when it is trimmed, so that it differs
 * from what is used of it.
 */

#include <pthread.h>

#include "cuda_internal.h"

#define RESERVED_STEP (32ull << 20)
#define HOST_DEVICE 0 /* whose addresses a pool on the host gets */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUmemoryPool defaults[MAX_DEVICES], current[MAX_DEVICES]; /* under `lock` */

enum pool_operation { POOL_CREATED = 1, POOL_DESTROYED, POOL_TRIMMED };

static void tell(enum pool_operation operation, CUmemoryPool pool)
{
    if (activity_is_wanted())
        activity_tell((struct activity){ .kind = ACTIVITY_POOL,
                                         .device = pool->device < 0 ? 0 : (uint32_t)pool->device,
                                         .operation = operation,
                                         .address = (uintptr_t)pool,
                                         .bytes = pool->reserved });
}

bool pool_is(CUmemoryPool pool)
{
    return handle_is(pool, HANDLE_POOL) && !pool->destroyed;
}

CUresult pool_new(CUmemoryPool *pool, int device, bool imported)
{
    CUmemoryPool taken = handle_take(HANDLE_POOL);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    taken->device = (int16_t)device;
    taken->imported = imported;
    *pool = taken;
    tell(POOL_CREATED, taken);
    return CUDA_SUCCESS;
}

static CUmemoryPool default_of(CUdevice device)
{
    if (!defaults[device] && pool_new(&defaults[device], device, false) == CUDA_SUCCESS)
        current[device] = current[device] ? current[device] : defaults[device];
    return defaults[device];
}

CUmemoryPool pool_current(CUdevice device)
{
    pthread_mutex_lock(&lock);
    default_of(device);
    CUmemoryPool pool = current[device];
    pthread_mutex_unlock(&lock);
    return pool;
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + RESERVED_STEP - 1) / RESERVED_STEP * RESERVED_STEP;
}

CUresult pool_take(CUmemoryPool pool, size_t bytes, CUdeviceptr *address)
{
    uint64_t taken;
    int device = pool->device < 0 ? HOST_DEVICE : pool->device;
    pthread_mutex_lock(&lock);
    bool ok = blocks_take(pool, device, bytes, &taken);
    if (ok) {
        pool->blocks++;
        pool->used += bytes;
        if (pool->used > pool->reserved)
            pool->reserved = rounded(pool->used);
        if (pool->used > pool->used_high)
            pool->used_high = pool->used;
        if (pool->reserved > pool->reserved_high)
            pool->reserved_high = pool->reserved;
        *address = taken;
    }
    pthread_mutex_unlock(&lock);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool memory_release(CUdeviceptr address, bool asynchronous)
{
    const void *owner;
    uint64_t bytes;
    if (!blocks_release_from(address, &owner, &bytes))
        return graph_memory_release(address);
    tell_memory(true, MEMORY_DEVICE, address, bytes, asynchronous);
    if (!handle_is(owner, HANDLE_POOL))
        return true;
    CUmemoryPool pool = (CUmemoryPool)owner;
    pthread_mutex_lock(&lock);
    pool->used -= bytes;
    if (--pool->blocks == 0 && pool->destroyed)
        handle_release(pool);
    pthread_mutex_unlock(&lock);
    return true;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    ENTER_INITIALIZED();
    if (!pool || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    CUmemLocation location = properties->location;
    if (!location_resolve(&location))
        return CUDA_ERROR_INVALID_VALUE;
    return pool_new(pool, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1, false);
}

/* Frees nothing: allocations stay until they are freed. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    ENTER_INITIALIZED();
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (pool_is(pool) && (pool->device < 0 || pool != defaults[pool->device])) {
        for (int device = 0; device < MAX_DEVICES; device++)
            if (current[device] == pool)
                current[device] = default_of(device);
        pool->destroyed = true;
        tell(POOL_DESTROYED, pool);
        if (pool->blocks == 0)
            handle_release(pool);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t kept_bytes)
{
    ENTER_INITIALIZED();
    if (!pool_is(pool))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    uint64_t kept = rounded(pool->used > kept_bytes ? pool->used : kept_bytes);
    if (kept < pool->reserved)
        pool->reserved = kept;
    tell(POOL_TRIMMED, pool);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    ENTER_INITIALIZED();
    if (!pool_is(pool) || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
        attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
        *(int *)value = 1;
        return CUDA_SUCCESS;
    }
    if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const uint64_t values[] = { pool->threshold, pool->reserved, pool->reserved_high, pool->used,
                                pool->used_high };
    *(uint64_t *)value = values[attribute - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    ENTER_INITIALIZED();
    if (!pool_is(pool) || !value)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = *(uint64_t *)value;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !*(uint64_t *)value)
        pool->reserved_high = pool->reserved;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !*(uint64_t *)value)
        pool->used_high = pool->used;
    else if (attribute < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
             attribute > CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult pool_of_device(CUmemoryPool *pool, CUdevice device, bool the_default)
{
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    CUmemoryPool found = default_of(device);
    *pool = the_default ? found : current[device];
    pthread_mutex_unlock(&lock);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    ENTER_INITIALIZED();
    return pool_of_device(pool, device, true);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    ENTER_INITIALIZED();
    return pool_of_device(pool, device, false);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    ENTER_INITIALIZED();
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool_is(pool) || pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    default_of(device);
    current[device] = pool;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
