/* Stand-in libcuda: reserved address ranges and their mappings. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda_internal.h"

/* Of one reservation, in the order of addresses. */
struct mapping {
    struct mapping *next;
    uint64_t address, bytes;
    struct physical *physical;
};

/* Under `vmm_lock`. */
static struct reservation {
    struct reservation *next;
    uint64_t address, bytes;
    struct mapping *mappings;
} * reservations;

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory) {
        fputs("stand-in CUDA: no host memory for a mapping\n", stderr);
        abort();
    }
    return memory;
}

/* The link to the reservation that contains the whole range. */
static struct reservation **find(uint64_t address, uint64_t bytes)
{
    for (struct reservation **link = &reservations; *link; link = &(*link)->next)
        if (address >= (*link)->address && address - (*link)->address < (*link)->bytes &&
            bytes <= (*link)->bytes - (address - (*link)->address))
            return link;
    return NULL;
}

struct physical *physical_at(CUdeviceptr address)
{
    struct reservation **link = find(address, 1);
    for (struct mapping *m = link ? (*link)->mappings : NULL; m; m = m->next)
        if (address >= m->address && address - m->address < m->bytes)
            return m->physical;
    return NULL;
}

static bool is_range(uint64_t address, uint64_t bytes)
{
    return bytes && address % GRANULARITY == 0 && bytes % GRANULARITY == 0;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    ENTER_INITIALIZED();
    if (!address || !is_range(0, bytes) || (alignment & (alignment - 1)) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t taken = space_take(bytes, hint);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct reservation *reservation = allocate(sizeof *reservation);
    pthread_mutex_lock(&vmm_lock);
    *reservation = (struct reservation){ reservations, taken, bytes, NULL };
    reservations = reservation;
    pthread_mutex_unlock(&vmm_lock);
    *address = taken;
    return CUDA_SUCCESS;
}

/* All of a reservation at once, and only with nothing mapped. */
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    ENTER_INITIALIZED();
    struct reservation *found = NULL;
    pthread_mutex_lock(&vmm_lock);
    struct reservation **link = bytes ? find(address, bytes) : NULL;
    if (link && (*link)->address == address && (*link)->bytes == bytes && !(*link)->mappings) {
        found = *link;
        *link = found->next;
    }
    pthread_mutex_unlock(&vmm_lock);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    free(found);
    space_release(address, bytes);
    return CUDA_SUCCESS;
}

/* The insertion point of a mapping of the range; NULL if it overlaps one. */
static struct mapping **place_for(struct reservation *reservation, uint64_t address, uint64_t bytes)
{
    struct mapping **link = &reservation->mappings;
    while (*link && (*link)->address + (*link)->bytes <= address)
        link = &(*link)->next;
    return *link && (*link)->address < address + bytes ? NULL : link;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    ENTER_INITIALIZED();
    if (!is_range(address, bytes) || offset % GRANULARITY || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct mapping *mapping = allocate(sizeof *mapping);
    struct mapping **place = NULL;
    pthread_mutex_lock(&vmm_lock);
    struct physical *physical = physical_of(handle);
    struct reservation **link = find(address, bytes);
    if (link && physical && offset < physical->bytes && bytes <= physical->bytes - offset)
        place = place_for(*link, address, bytes);
    if (place) {
        *mapping = (struct mapping){ *place, address, bytes, physical };
        *place = mapping;
        physical->mappings++;
    }
    pthread_mutex_unlock(&vmm_lock);
    if (place)
        return CUDA_SUCCESS;
    free(mapping);
    return CUDA_ERROR_INVALID_VALUE;
}

/* The link to the first of the mappings that fill the range without a gap; with `whole`, exactly.
 * NULL if none do. */
static struct mapping **mappings_in(uint64_t address, uint64_t bytes, bool whole)
{
    struct reservation **reservation = find(address, bytes);
    if (!reservation)
        return NULL;
    struct mapping **first = &(*reservation)->mappings;
    while (*first && (*first)->address + (*first)->bytes <= address)
        first = &(*first)->next;
    if (!*first || (*first)->address > address || (whole && (*first)->address != address))
        return NULL;
    uint64_t end = (*first)->address + (*first)->bytes;
    for (struct mapping *m = (*first)->next; m && end < address + bytes; m = m->next) {
        if (m->address != end)
            return NULL;
        end += m->bytes;
    }
    return end < address + bytes || (whole && end != address + bytes) ? NULL : first;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    ENTER_INITIALIZED();
    if (!is_range(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&vmm_lock);
    struct mapping **link = mappings_in(address, bytes, true);
    while (link && *link && (*link)->address < address + bytes) {
        struct mapping *mapping = *link;
        *link = mapping->next;
        mapping->physical->mappings--;
        physical_settle(mapping->physical);
        free(mapping);
    }
    pthread_mutex_unlock(&vmm_lock);
    return link ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *accesses,
                        size_t count)
{
    ENTER_INITIALIZED();
    if (!is_range(address, bytes) || !accesses || !count)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&vmm_lock);
    bool mapped = mappings_in(address, bytes, false);
    pthread_mutex_unlock(&vmm_lock);
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
