/* Stand-in libcuda: host memory, allocated by the driver or registered with it. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cuda_internal.h"

#define PAGE_BYTES 4096
#define ALLOCATION_FLAGS 7u
#define REGISTRATION_FLAGS 15u

/* Ordinary memory, listed so that freeing anything else is an error. */
struct region {
    struct region *next;
    void *address;
    size_t bytes;
    CUcontext owner;
    bool registered; /* else it was allocated here */
};

static struct region *regions; /* under `lock` */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool overlap(const struct region *region, const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address, other = (uintptr_t)region->address;
    return first < other + region->bytes && other < first + bytes;
}

static void region_delete(struct region *region)
{
    if (!region->registered)
        free(region->address);
    free(region);
}

/* Unlinks the region that begins at `address`; NULL if there is none. */
static struct region *region_remove(const void *address, bool registered)
{
    pthread_mutex_lock(&lock);
    struct region **link = &regions;
    while (*link && ((*link)->address != address || (*link)->registered != registered))
        link = &(*link)->next;
    struct region *region = *link;
    if (region)
        *link = region->next;
    pthread_mutex_unlock(&lock);
    return region;
}

static CUresult region_add(struct region region)
{
    struct region *copy = malloc(sizeof *copy);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *copy = region;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (const struct region *r = regions; r; r = r->next)
        if (overlap(r, region.address, region.bytes))
            result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!result) {
        copy->next = regions;
        regions = copy;
    }
    pthread_mutex_unlock(&lock);
    if (result)
        free(copy);
    return result;
}

static CUresult allocate(void **address, size_t bytes, unsigned int flags)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (!address || bytes == 0 || flags > ALLOCATION_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    struct region region = { .bytes = bytes, .owner = context };
    if (posix_memalign(&region.address, PAGE_BYTES, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = region_add(region);
    if (result)
        free(region.address);
    else
        *address = region.address;
    if (!result)
        tell_memory(false, MEMORY_PINNED, (uintptr_t)region.address, bytes, false);
    return result;
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags)
{
    ENTER_INITIALIZED();
    return allocate(address, bytes, flags);
}

CUresult cuMemAllocHost_v2(void **address, size_t bytes)
{
    ENTER_INITIALIZED();
    return allocate(address, bytes, 0);
}

CUresult cuMemFreeHost(void *address)
{
    ENTER_INITIALIZED();
    struct region *region = region_remove(address, false);
    if (!region)
        return CUDA_ERROR_INVALID_VALUE;
    tell_memory(true, MEMORY_PINNED, (uintptr_t)address, region->bytes, false);
    region_delete(region);
    return CUDA_SUCCESS;
}

static CUresult make_known(void *address, size_t bytes, unsigned int flags)
{
    CUcontext context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (!address || bytes == 0 || flags > REGISTRATION_FLAGS ||
        bytes > UINTPTR_MAX - (uintptr_t)address)
        return CUDA_ERROR_INVALID_VALUE;
    return region_add((struct region){
        .address = address, .bytes = bytes, .owner = context, .registered = true });
}

CUresult cuMemHostRegister(void *address, size_t bytes, unsigned int flags)
{
    ENTER_INITIALIZED();
    return make_known(address, bytes, flags);
}

CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags)
{
    ENTER_INITIALIZED();
    return make_known(address, bytes, flags);
}

CUresult cuMemHostUnregister(void *address)
{
    ENTER_INITIALIZED();
    struct region *region = region_remove(address, true);
    if (!region)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    region_delete(region);
    return CUDA_SUCCESS;
}

void host_release_owned(CUcontext context)
{
    pthread_mutex_lock(&lock);
    for (struct region **link = &regions; *link;) {
        struct region *region = *link;
        if (region->owner != context) {
            link = &region->next;
            continue;
        }
        *link = region->next;
        region_delete(region);
    }
    pthread_mutex_unlock(&lock);
}
