/* Virtual memory management, by the driver's functions for every backend: the runtime has none. */
#ifndef STANDIN_WORKLOAD_VMM_H
#define STANDIN_WORKLOAD_VMM_H

#include "cuda_abi.h"
#include "workload.h"

/* clang-format off */
#define VMM_FUNCTIONS(FUNCTION) \
    FUNCTION(cuMemCreate) \
    FUNCTION(cuMemRelease) \
    FUNCTION(cuMemRetainAllocationHandle) \
    FUNCTION(cuMemMap) \
    FUNCTION(cuMemUnmap) \
    FUNCTION(cuMemAddressReserve) \
    FUNCTION(cuMemAddressFree) \
    FUNCTION(cuMemSetAccess) \
    FUNCTION(cuMemExportToShareableHandle) \
    FUNCTION(cuMemImportFromShareableHandle) \
    FUNCTION(cuMemPoolExportToShareableHandle) \
    FUNCTION(cuMemPoolImportFromShareableHandle) \
    FUNCTION(cuMemPoolExportPointer) \
    FUNCTION(cuMemPoolImportPointer) \
    FUNCTION(cuGraphAddNode) \
    FUNCTION(cuGraphAddNode_v2)
/* clang-format on */

struct vmm {
#define FUNCTION(symbol) __typeof__(&symbol) symbol;
    VMM_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

extern struct vmm vmm;

/* Finds the functions, and initialises the driver. Leaves a reason in `reply` and
 * returns false. */
bool vmm_load(struct reply *reply);

#define VMM_STEP (2ull << 20)

CUmemAllocationProp vmm_properties(bool on_host);
CUresult vmm_set_access(CUdeviceptr address, size_t bytes);

/* Physical memory is a kslot: it exists while it has references or mappings, which these fields of
 * the slot count. */
#define VMM_REFERENCES(slot) ((slot)->more[0])
#define VMM_MAPPINGS(slot) ((slot)->more[1])

struct kslot vmm_slot(enum memory_kind kind, CUmemGenericAllocationHandle handle, size_t bytes,
                      bool on_host);
struct vmm_range {
    uint64_t address, bytes;
    size_t slot; /* of a mapping */
    bool live;
};
/* It can move when another is noted; NULL if there is none of that number. */
struct vmm_range *vmm_reservation_at(size_t number);
/* Remember what is mapped and reserved, for the commands that end it. */
void vmm_note_mapping(uint64_t address, uint64_t bytes, size_t slot);
size_t vmm_note_reservation(uint64_t address, uint64_t bytes);
/* Unmap, and free the addresses; both return the CUDA error. */
int vmm_unmap(struct tally *tally, uint64_t address, uint64_t bytes);
int vmm_unreserve(struct vmm_range *range);

#endif
