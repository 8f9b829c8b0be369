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

#endif
