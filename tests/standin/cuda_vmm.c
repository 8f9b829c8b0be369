/* Stand-in libcuda: physical memory of the virtual memory management. It belongs to no context. Its
 * mappings are in cuda_map.c. */

#include <unistd.h>

#include "cuda_internal.h"

pthread_mutex_t vmm_lock = PTHREAD_MUTEX_INITIALIZER;

_Static_assert(sizeof(struct physical) <= HANDLE_BYTES, "physical memory must fit its slot");

struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    struct physical *physical = (struct physical *)(uintptr_t)handle;
    return handle_is(physical, HANDLE_PHYSICAL) && physical->references ? physical : NULL;
}

static bool is_on_device(const struct physical *physical)
{
    return physical->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

bool location_resolve(CUmemLocation *location)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN:
        *location =
            (CUmemLocation){ CU_MEM_LOCATION_TYPE_DEVICE, { location->localized.deviceId } };
        return is_device(location->id);
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return is_device(location->id);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_OF_THE_FUTURE:
        return true;
    default:
        return false;
    }
}

void physical_settle(struct physical *physical)
{
    if (physical->references || physical->mappings)
        return;
    if (is_on_device(physical) && !physical->imported)
        blocks_uncharge(physical->location.id, physical->bytes);
    handle_release(physical);
}

static CUmemGenericAllocationHandle handle_of(const struct physical *physical)
{
    return (CUmemGenericAllocationHandle)(uintptr_t)physical;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    ENTER_INITIALIZED();
    if (!handle || !bytes || bytes % GRANULARITY || flags || !properties ||
        properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    CUmemLocation location = properties->location;
    if (!location_resolve(&location))
        return CUDA_ERROR_INVALID_VALUE;
    bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (on_device && !blocks_charge(location.id, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&vmm_lock);
    struct physical *physical = handle_take(HANDLE_PHYSICAL);
    if (physical) {
        physical->bytes = bytes;
        physical->references = 1;
        physical->location = location;
        physical->handle_types = properties->requestedHandleTypes;
        *handle = handle_of(physical);
    } else if (on_device) {
        blocks_uncharge(location.id, bytes);
    }
    pthread_mutex_unlock(&vmm_lock);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER_INITIALIZED();
    pthread_mutex_lock(&vmm_lock);
    struct physical *physical = physical_of(handle);
    if (physical) {
        physical->references--;
        physical_settle(physical);
    }
    pthread_mutex_unlock(&vmm_lock);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The very same handle, even if its last reference was released before. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    ENTER_INITIALIZED();
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&vmm_lock);
    struct physical *physical = physical_at((CUdeviceptr)(uintptr_t)address);
    if (physical) {
        physical->references++;
        *handle = handle_of(physical);
    }
    pthread_mutex_unlock(&vmm_lock);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    ENTER_INITIALIZED();
    struct share share = { .kind = SHARE_MEMORY };
    if (!shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&vmm_lock);
    const struct physical *physical = physical_of(handle);
    bool exportable = physical && (physical->handle_types & type);
    if (exportable) {
        share.location_type = physical->location.type;
        share.location_id = physical->location.id;
        share.pid = getpid();
        share.bytes = physical->bytes;
        share.handle = handle;
    }
    pthread_mutex_unlock(&vmm_lock);
    int fd = exportable ? share_export(&share) : -1;
    if (fd == -1)
        return CUDA_ERROR_INVALID_VALUE;
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

/* A handle of its own, even for memory of this process. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    ENTER_INITIALIZED();
    struct share share;
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !share_import((int)(intptr_t)shareable, SHARE_MEMORY, &share))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&vmm_lock);
    struct physical *physical = handle_take(HANDLE_PHYSICAL);
    if (physical) {
        physical->bytes = share.bytes;
        physical->references = 1;
        physical->imported = true;
        physical->location = (CUmemLocation){ share.location_type, { share.location_id } };
        physical->handle_types = type;
        *handle = handle_of(physical);
    }
    pthread_mutex_unlock(&vmm_lock);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
