/* Commands of the virtual memory management, one call after another, and those that share physical
 * memory and pools through file descriptors. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload_async.h"
#include "workload_options.h"
#include "workload_vmm.h"

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

static int release_physical(struct kslot *slot)
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
                           .release = release_physical,
                           .more = { 1, 0 } };
}

static void settle(struct tally *tally, struct kslot *slot)
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
        settle(tally, kslot_at(m->slot));
    }
    return error;
}

int vmm_unreserve(struct vmm_range *range)
{
    int error = vmm.cuMemAddressFree(range->address, range->bytes);
    range->live = error != 0;
    return error;
}

static struct vmm_range *mapping_at(size_t number)
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

/* ---- commands ---------------------------------------------------------- */

static struct kslot *find_physical(const char *text, struct reply *reply)
{
    struct kslot *slot = kslot_named(text, reply);
    if (slot && slot->release != release_physical) {
        reply_add(reply, "kslot %s is no handle", text);
        return NULL;
    }
    return vmm_load(reply) ? slot : NULL;
}

static struct vmm_range *find_reservation(const char *text, struct reply *reply)
{
    uint64_t number;
    if (!parse_u64(text, SIZE_MAX, &number, reply))
        return NULL;
    struct vmm_range *range = vmm_reservation_at(number);
    if (range && range->live)
        return range;
    reply_add(reply, "no reservation %s", text);
    return NULL;
}

CALL_SITE static bool run_vcreate(struct words *words, struct reply *reply)
{
    uint64_t bytes, count = 1, shown = 0;
    bool on_host = false;
    const struct option options[] = { { NULL, OPTION_NUMBER, &count, UINT32_MAX },
                                      { "host", OPTION_FLAG, &on_host, 0 } };
    if (!vmm_load(reply) || !parse_u64(words->word[1], SIZE_MAX, &bytes, reply) ||
        !parse_options(words, 2, options, 2, reply))
        return false;
    CUmemAllocationProp properties = vmm_properties(on_host);
    struct tally tally = { 0 };
    for (uint64_t i = 0; i < count; i++) {
        CUmemGenericAllocationHandle handle;
        if (!tally_result(&tally, vmm.cuMemCreate(&handle, bytes, &properties, 0)))
            continue;
        kslot_add(&tally, vmm_slot(KIND_VMM, handle, bytes, on_host));
        reply_handle(reply, shown++, handle);
    }
    return reply_done(reply, &tally);
}

/* One release too many is an error of the driver's. */
CALL_SITE static bool run_vrelease(struct words *words, struct reply *reply)
{
    uint64_t count = 1;
    struct kslot *slot = find_physical(words->word[1], reply);
    if (!slot || !parse_optional(words, 2, MAX_CALLS, &count, reply))
        return false;
    struct tally tally = { 0 };
    for (uint64_t i = 0; i < count; i++)
        kslot_release(&tally, slot);
    reply_add(reply, "frees=%lu live=%d", tally.frees, slot->live);
    return reply_done(reply, &tally);
}

CALL_SITE static bool run_vretain(struct words *words, struct reply *reply)
{
    CUmemGenericAllocationHandle handle;
    struct kslot *slot = find_physical(words->word[1], reply);
    struct vmm_range *range = slot ? mapping_at(0) : NULL;
    for (size_t i = 1; range && !(range->live && kslot_at(range->slot) == slot); i++)
        range = mapping_at(i);
    if (!range) {
        reply_add(reply, "not mapped");
        return false;
    }
    int error = vmm.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)range->address);
    if (error)
        return reply_error(reply, error);
    VMM_REFERENCES(slot)++;
    reply_handle(reply, 0, handle);
    return handle == slot->handle;
}

CALL_SITE static bool run_vreserve(struct words *words, struct reply *reply)
{
    uint64_t bytes;
    CUdeviceptr address;
    if (!vmm_load(reply) || !parse_u64(words->word[1], SIZE_MAX, &bytes, reply))
        return false;
    int error = vmm.cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (error)
        return reply_error(reply, error);
    reply_add(reply, "%zu 0x%llx", vmm_note_reservation(address, bytes), address);
    return true;
}

CALL_SITE static bool run_vfreeaddr(struct words *words, struct reply *reply)
{
    struct vmm_range *reservation = find_reservation(words->word[1], reply);
    if (!reservation)
        return false;
    return reply_error(reply, vmm_unreserve(reservation));
}

/* All of the handle's memory, at OFFSET in the reservation. */
CALL_SITE static bool run_vmap(struct words *words, struct reply *reply)
{
    uint64_t offset = 0;
    struct kslot *slot = find_physical(words->word[1], reply);
    const struct vmm_range *reservation = slot ? find_reservation(words->word[2], reply) : NULL;
    if (!reservation || !parse_optional(words, 3, SIZE_MAX, &offset, reply))
        return false;
    uint64_t address = reservation->address + offset;
    int error = vmm.cuMemMap(address, slot->bytes, 0, slot->handle, 0);
    if (!error) {
        VMM_MAPPINGS(slot)++;
        uint64_t number = 0;
        while (kslot_at(number) != slot)
            number++;
        vmm_note_mapping(address, slot->bytes, number);
        reply_handle(reply, 0, address);
    }
    return reply_error(reply, error);
}

CALL_SITE static bool run_vunmap(struct words *words, struct reply *reply)
{
    uint64_t address, bytes;
    if (!vmm_load(reply) || !parse_u64(words->word[1], UINT64_MAX, &address, reply) ||
        !parse_u64(words->word[2], UINT64_MAX, &bytes, reply))
        return false;
    struct tally tally = { 0 };
    int error = vmm_unmap(&tally, address, bytes);
    truth_add(&tally);
    return reply_error(reply, error);
}

/* All of it: mappings, references, reservations. */
CALL_SITE static bool run_vfreeall(struct words *words, struct reply *reply)
{
    (void)words;
    struct vmm_range *range;
    struct tally tally = { 0 };
    if (!vmm_load(reply))
        return false;
    for (size_t i = 0; (range = mapping_at(i)); i++)
        if (range->live)
            tally_result(&tally, vmm_unmap(&tally, range->address, range->bytes));
    for (size_t i = 0; i < kslot_count(); i++)
        while (kslot_at(i)->release == release_physical && kslot_at(i)->live)
            if (!kslot_release(&tally, kslot_at(i)))
                break;
    for (size_t i = 0; (range = vmm_reservation_at(i)); i++)
        if (range->live)
            tally_result(&tally, vmm_unreserve(range));
    reply_add(reply, "frees=%lu", tally.frees);
    return reply_done(reply, &tally);
}

/* ---- sharing ----------------------------------------------------------- */

#define FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

CALL_SITE static bool run_vexport(struct words *words, struct reply *reply)
{
    int fd;
    const struct kslot *slot = kslot_named(words->word[1], reply);
    if (!slot || !vmm_load(reply))
        return false;
    int error = vmm.cuMemExportToShareableHandle(&fd, slot->handle, FD, 0);
    if (!error)
        reply_add(reply, "%d", fd);
    return reply_error(reply, error);
}

/* Importers get the size by other means. */
CALL_SITE static bool run_vimport(struct words *words, struct reply *reply)
{
    uint64_t fd, bytes;
    CUmemGenericAllocationHandle handle;
    if (!vmm_load(reply) || !parse_u64(words->word[1], INT32_MAX, &fd, reply) ||
        !parse_u64(words->word[2], INT64_MAX, &bytes, reply))
        return false;
    struct tally tally = { 0 };
    if (tally_result(&tally,
                     vmm.cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, FD))) {
        kslot_add(&tally, vmm_slot(KIND_IMPORTED, handle, bytes, false));
        reply_handle(reply, 0, handle);
    }
    return reply_done(reply, &tally);
}

/* Pools are named by their handles here, as the pool command shows them. */
CALL_SITE static bool run_poolexport(struct words *words, struct reply *reply)
{
    int fd;
    uint64_t pool;
    if (!vmm_load(reply) || !parse_u64(words->word[1], UINTPTR_MAX, &pool, reply))
        return false;
    int error = vmm.cuMemPoolExportToShareableHandle(&fd, (CUmemoryPool)(uintptr_t)pool, FD, 0);
    if (!error)
        reply_add(reply, "%d", fd);
    return reply_error(reply, error);
}

CALL_SITE static bool run_poolimport(struct words *words, struct reply *reply)
{
    uint64_t fd;
    CUmemoryPool pool;
    if (!vmm_load(reply) || !parse_u64(words->word[1], INT32_MAX, &fd, reply))
        return false;
    int error = vmm.cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd, FD, 0);
    if (!error)
        reply_handle(reply, 0, (uintptr_t)pool);
    return reply_error(reply, error);
}

CALL_SITE static bool run_ptrexport(struct words *words, struct reply *reply)
{
    CUmemPoolPtrExportData data;
    const struct kslot *slot = kslot_named(words->word[1], reply);
    if (!slot || !vmm_load(reply))
        return false;
    int error = vmm.cuMemPoolExportPointer(&data, slot->handle);
    for (size_t i = 0; !error && i < sizeof data; i++)
        reply_add(reply, "%02x", data.reserved[i]);
    return reply_error(reply, error);
}

CALL_SITE static bool run_ptrimport(struct words *words, struct reply *reply)
{
    CUmemPoolPtrExportData data;
    CUdeviceptr address;
    uint64_t pool, bytes;
    const char *hex = words->word[2];
    if (!vmm_load(reply) || !parse_u64(words->word[1], UINTPTR_MAX, &pool, reply) ||
        !parse_u64(words->word[3], INT64_MAX, &bytes, reply))
        return false;
    for (size_t i = 0; i < sizeof data; i++)
        if (strlen(hex) != 2 * sizeof data ||
            sscanf(hex + 2 * i, "%2hhx", &data.reserved[i]) != 1) {
            reply_add(reply, "expected %zu bytes in hexadecimal digits", sizeof data);
            return false;
        }
    struct tally tally = { 0 };
    if (tally_result(&tally,
                     vmm.cuMemPoolImportPointer(&address, (CUmemoryPool)(uintptr_t)pool, &data))) {
        kslot_add(&tally, async_slot(KIND_IMPORTED, (void *)(uintptr_t)address, bytes, NULL));
        reply_handle(reply, 0, address);
    }
    return reply_done(reply, &tally);
}

const struct command vmm_commands[] = {
    { "vcreate", "vcreate SIZE [COUNT] [host]", 1, 3, NEEDS_API, run_vcreate },
    { "vrelease", "vrelease KSLOT [COUNT]", 1, 2, NEEDS_API, run_vrelease },
    { "vretain", "vretain KSLOT", 1, 1, NEEDS_API, run_vretain },
    { "vreserve", "vreserve SIZE", 1, 1, NEEDS_API, run_vreserve },
    { "vfreeaddr", "vfreeaddr RESERVATION", 1, 1, NEEDS_API, run_vfreeaddr },
    { "vmap", "vmap KSLOT RESERVATION [OFFSET]", 2, 3, NEEDS_API, run_vmap },
    { "vunmap", "vunmap ADDRESS SIZE", 2, 2, NEEDS_API, run_vunmap },
    { "vfreeall", "vfreeall", 0, 0, NEEDS_API, run_vfreeall },
    { "vexport", "vexport KSLOT", 1, 1, NEEDS_API, run_vexport },
    { "vimport", "vimport FD SIZE", 2, 2, NEEDS_API, run_vimport },
    { "poolexport", "poolexport HANDLE", 1, 1, NEEDS_API, run_poolexport },
    { "poolimport", "poolimport FD", 1, 1, NEEDS_API, run_poolimport },
    { "ptrexport", "ptrexport KSLOT", 1, 1, NEEDS_API, run_ptrexport },
    { "ptrimport", "ptrimport POOLHANDLE HEX SIZE", 3, 3, NEEDS_API, run_ptrimport },
    { .name = NULL },
};
