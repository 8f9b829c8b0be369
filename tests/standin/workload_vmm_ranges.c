/* Mappings and reservations, shared by the virtual memory management commands. */
#define _GNU_SOURCE
#include "workload_vmm.h"

#include <dlfcn.h>
#include <stdlib.h>

struct vmm vmm;

/* One command runs at a time, on whichever thread: no lock. */
static struct vmm_range *mappings, *reservations;
static size_t mapping_count, reservation_count;

bool vmm_load(struct reply *reply)
{
    static const struct import {
        const char *name;
        void **function;
    } imports[] = {
#define FUNCTION(symbol) { #symbol, (void **)&vmm.symbol },
        VMM_FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    static bool loaded;
    if (loaded)
        return true;
    __typeof__(&cuInit) init = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    bool found = library && (*(void **)&init = dlsym(library, "cuInit"));
    for (size_t i = 0; found && i < sizeof imports / sizeof *imports; i++)
        found = (*imports[i].function = dlsym(library, imports[i].name));
    if (!found)
        reply_add(reply, "%s", dlerror());
    loaded = found && init(0) == CUDA_SUCCESS;
    return loaded;
}

CUmemAllocationProp vmm_properties(bool on_host)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { on_host ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                      on_host ? 0 : thread_device },
    };
}

CUresult vmm_set_access(CUdeviceptr address, size_t bytes)
{
    CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, thread_device }, 3 };
    return vmm.cuMemSetAccess(address, bytes, &access, 1);
}

int vmm_release(struct kslot *slot)
{
    int error = vmm.cuMemRelease(slot->handle);
    if (!error) {
        VMM_REFERENCES(slot)--;
        slot->kept = VMM_REFERENCES(slot) || VMM_MAPPINGS(slot);
    }
    return error;
}

struct kslot vmm_slot(enum memory_kind kind, CUmemGenericAllocationHandle handle, size_t bytes,
                      bool on_host)
{
    return (struct kslot){ .kind = kind,
                           .handle = handle,
                           .bytes = bytes,
                           .on_host = on_host,
                           .release = vmm_release,
                           .more = { 1, 0 } };
}

void vmm_settle(struct tally *tally, struct kslot *slot)
{
    if (!VMM_REFERENCES(slot) && !VMM_MAPPINGS(slot))
        kslot_end(tally, slot);
}

static size_t note(struct vmm_range **ranges, size_t *count, struct vmm_range range)
{
    *ranges = realloc(*ranges, (*count + 1) * sizeof **ranges);
    (*ranges)[*count] = range;
    return (*count)++;
}

void vmm_note_mapping(uint64_t address, uint64_t bytes, size_t slot)
{
    note(&mappings, &mapping_count, (struct vmm_range){ address, bytes, slot, true });
}

size_t vmm_note_reservation(uint64_t address, uint64_t bytes)
{
    return note(&reservations, &reservation_count, (struct vmm_range){ address, bytes, 0, true });
}

int vmm_unmap(struct tally *tally, uint64_t address, uint64_t bytes)
{
    int error = vmm.cuMemUnmap(address, bytes);
    for (size_t i = 0; !error && i < mapping_count; i++) {
        struct vmm_range *m = &mappings[i];
        if (!m->live || m->address < address || m->address >= address + bytes)
            continue;
        m->live = false;
        VMM_MAPPINGS(kslot_at(m->slot))--;
        vmm_settle(tally, kslot_at(m->slot));
    }
    return error;
}

int vmm_unreserve(struct vmm_range *range)
{
    int error = vmm.cuMemAddressFree(range->address, range->bytes);
    range->live = error != 0;
    return error;
}

struct vmm_range *vmm_mapping_at(size_t number)
{
    return number < mapping_count ? &mappings[number] : NULL;
}

struct vmm_range *vmm_reservation_at(size_t number)
{
    return number < reservation_count ? &reservations[number] : NULL;
}

void vmm_forget(void)
{
    mapping_count = 0;
    reservation_count = 0;
}
