/*
 * The steps of kinds.cu that are the driver's alone: virtual memory management
 * and contexts. `must` ends the program if a call fails.
 */
#ifndef GPUPROBE_TESTS_GPU_KINDS_VMM_H
#define GPUPROBE_TESTS_GPU_KINDS_VMM_H

#include "kinds_api.h"
#include "kinds_truth.h"

#include <cstdio>
#include <cstdlib>

#include <unistd.h>

inline void must(const char *what, int error)
{
    if (error) {
        fprintf(stderr, "kinds: %s: CUDA error %d\n", what, error);
        exit(1);
    }
}

class Virtual {
public:
    /* Two granules, mapped twice and retained; one that is never mapped. */
    void map(Truth &truth)
    {
        describe();
        CUmemGenericAllocationHandle unmapped;
        must("cuMemCreate", cuMemCreate(&handle_, granule_ * 2, &properties_, 0));
        serial_ = truth.hold("vmm", granule_ * 2, nullptr);
        must("cuMemCreate", cuMemCreate(&unmapped, granule_, &properties_, 0));
        truth.hold("vmm", granule_, [unmapped] { return cuMemRelease(unmapped); });
        must("cuMemAddressReserve", cuMemAddressReserve(&address_, granule_ * 8, 0, 0, 0));
        must("cuMemMap", cuMemMap(address_, granule_ * 2, 0, handle_, 0));
        must("cuMemMap", cuMemMap(address_ + granule_ * 4, granule_ * 2, 0, handle_, 0));
        CUmemGenericAllocationHandle again;
        must("cuMemRetainAllocationHandle",
             cuMemRetainAllocationHandle(&again, reinterpret_cast<void *>(address_)));
        truth.facts["retained handle is the same"] = again == handle_;
        truth.facts["reserved address bytes"] = granule_ * 8;
        truth.facts["mapped bytes"] = granule_ * 4;
    }

    /* No reference is left, and one mapping. */
    void release(Truth &truth)
    {
        for (int i = 0; i < 2; i++) {
            must("cuMemRelease", cuMemRelease(handle_));
            truth.released(serial_);
        }
        must("cuMemUnmap", cuMemUnmap(address_, granule_ * 2));
        truth.facts["mapped bytes"] = granule_ * 2;
    }

    void unmap(Truth &truth)
    {
        must("cuMemUnmap", cuMemUnmap(address_ + granule_ * 4, granule_ * 2));
        truth.gone(serial_);
        must("cuMemAddressFree", cuMemAddressFree(address_, granule_ * 8));
        truth.facts["mapped bytes"] = truth.facts["reserved address bytes"] = 0;
    }

    /* A handle is exported as a file descriptor and imported again. Its size shows once it is
     * mapped. */
    void share(Truth &truth)
    {
        describe();
        int descriptor = -1;
        must("cuMemCreate", cuMemCreate(&handle_, granule_, &properties_, 0));
        CUmemGenericAllocationHandle own = handle_;
        serial_ = truth.hold("vmm", granule_, [own] { return cuMemRelease(own); });
        must("cuMemExportToShareableHandle",
             cuMemExportToShareableHandle(&descriptor, handle_,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        must("cuMemImportFromShareableHandle",
             cuMemImportFromShareableHandle(&imported_,
                                            reinterpret_cast<void *>(static_cast<intptr_t>(
                                                descriptor)),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        close(descriptor);
        imported_serial_ = truth.hold("imported", 0, nullptr, false);
        truth.facts["imported handle is the same"] = imported_ == handle_;
    }

    void share_map(Truth &truth)
    {
        must("cuMemAddressReserve", cuMemAddressReserve(&address_, granule_, 0, 0, 0));
        must("cuMemMap", cuMemMap(address_, granule_, 0, imported_, 0));
        truth.resize(imported_serial_, granule_);
    }

    void share_end(Truth &truth)
    {
        must("cuMemRelease", cuMemRelease(imported_));
        truth.released(imported_serial_);
        must("cuMemUnmap", cuMemUnmap(address_, granule_));
        truth.gone(imported_serial_);
        must("cuMemAddressFree", cuMemAddressFree(address_, granule_));
    }

private:
    void describe()
    {
        properties_ = {};
        properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        must("cuMemGetAllocationGranularity",
             cuMemGetAllocationGranularity(&granule_, &properties_,
                                           CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    }

    CUmemAllocationProp properties_;
    size_t granule_ = 0;
    CUmemGenericAllocationHandle handle_ = 0, imported_ = 0;
    CUdeviceptr address_ = 0;
    uint64_t serial_ = 0, imported_serial_ = 0;
};

/* A context of its own on device 0, with memory of every kind in it. */
class OwnContext {
public:
    void fill(Truth &truth)
    {
        CUdeviceptr pointer;
        void *host;
        CUarray array;
        CUmemGenericAllocationHandle handle;
        CUmemAllocationProp properties = {};
        CUDA_ARRAY_DESCRIPTOR descriptor = { 64, 64, CU_AD_FORMAT_FLOAT, 1 };
        size_t granule;
        must("cuCtxCreate", create());
        first_ = truth.born();
        must("cuMemAlloc", cuMemAlloc(&pointer, 2 << 20));
        truth.hold("device", 2 << 20, nullptr);
        must("cuMemAllocManaged", cuMemAllocManaged(&pointer, 1 << 20, CU_MEM_ATTACH_GLOBAL));
        truth.hold("managed", 1 << 20, nullptr);
        must("cuMemHostAlloc", cuMemHostAlloc(&host, 1 << 20, 0));
        truth.hold("pinned", 1 << 20, nullptr, false);
        must("cuArrayCreate", cuArrayCreate(&array, &descriptor));
        truth.hold("array", 64 * 64 * 4, nullptr);
        must("cuMemAllocAsync", cuMemAllocAsync(&pointer, 2 << 20, nullptr));
        truth.hold("async", 2 << 20, [pointer] { return cuMemFree(pointer); });
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        must("cuMemGetAllocationGranularity",
             cuMemGetAllocationGranularity(&granule, &properties,
                                           CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        must("cuMemCreate", cuMemCreate(&handle, granule, &properties, 0));
        truth.hold("vmm", granule, [handle] { return cuMemRelease(handle); });
        must("cuCtxSynchronize", cuCtxSynchronize());
        last_ = truth.born();
    }

    void destroy(Truth &truth)
    {
        must("cuCtxDestroy", cuCtxDestroy(context_));
        truth.context_ended(first_, last_);
    }

private:
    int create()
    {
#if CUDA_VERSION >= 13000
        return cuCtxCreate(&context_, nullptr, 0, 0);
#else
        return cuCtxCreate(&context_, 0, 0);
#endif
    }

    CUcontext context_ = nullptr;
    uint64_t first_ = 0, last_ = 0;
};

#endif
