/* Commands of the virtual memory management, one call after another. */
#include "workload_options.h"
#include "workload_vmm.h"

static struct kslot *find_physical(const char *text, struct reply *reply)
{
    struct kslot *slot = kslot_named(text, reply);
    if (slot && slot->release != vmm_release) {
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
    struct vmm_range *range = slot ? vmm_mapping_at(0) : NULL;
    for (size_t i = 1; range && !(range->live && kslot_at(range->slot) == slot); i++)
        range = vmm_mapping_at(i);
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

CALL_SITE static bool run_vaccess(struct words *words, struct reply *reply)
{
    uint64_t address, bytes;
    return vmm_load(reply) && parse_u64(words->word[1], UINT64_MAX, &address, reply) &&
           parse_u64(words->word[2], UINT64_MAX, &bytes, reply) &&
           reply_error(reply, vmm_set_access(address, bytes));
}

/* All of it: mappings, references, reservations. */
CALL_SITE static bool run_vfreeall(struct words *words, struct reply *reply)
{
    (void)words;
    struct vmm_range *range;
    struct tally tally = { 0 };
    if (!vmm_load(reply))
        return false;
    for (size_t i = 0; (range = vmm_mapping_at(i)); i++)
        if (range->live)
            tally_result(&tally, vmm_unmap(&tally, range->address, range->bytes));
    for (size_t i = 0; i < kslot_count(); i++)
        while (kslot_at(i)->release == vmm_release && kslot_at(i)->live)
            if (!kslot_release(&tally, kslot_at(i)))
                break;
    for (size_t i = 0; (range = vmm_reservation_at(i)); i++)
        if (range->live)
            tally_result(&tally, vmm_unreserve(range));
    reply_add(reply, "frees=%lu", tally.frees);
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
    { "vaccess", "vaccess ADDRESS SIZE", 2, 2, NEEDS_API, run_vaccess },
    { "vfreeall", "vfreeall", 0, 0, NEEDS_API, run_vfreeall },
    { .name = NULL },
};
