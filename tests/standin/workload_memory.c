/* Commands that allocate, free and choose devices, one call after another. */
#include <stdio.h>
#include <stdlib.h>

#include "workload.h"

#define SHOWN_ADDRESSES 16

_Thread_local int thread_device;

/* One command runs at a time, on whichever thread: no lock. */
static struct slot *slots;
static size_t slot_count, slot_capacity;

void slot_add(void *address, size_t bytes)
{
    if (slot_count == slot_capacity) {
        slot_capacity = slot_capacity ? 2 * slot_capacity : 1024;
        slots = realloc(slots, slot_capacity * sizeof *slots);
        if (!slots) {
            perror("workload: slots");
            abort();
        }
    }
    slots[slot_count++] =
        (struct slot){ address, bytes, thread_device, thread_context, address != NULL };
}

struct slot *slot_at(size_t number)
{
    return number < slot_count ? &slots[number] : NULL;
}

void slots_forget(void)
{
    slot_count = 0;
}

void slots_end_context(struct tally *tally, int device, const void *context)
{
    for (size_t i = 0; i < slot_count; i++) {
        if (!slots[i].live || slots[i].device != device || slots[i].context != context)
            continue;
        slots[i].live = false;
        tally_lose(tally, KIND_DEVICE, slots[i].bytes, false);
    }
    kslots_end_context(tally, device, context);
}

CALL_SITE static bool run_alloc(struct words *words, struct reply *reply)
{
    uint64_t bytes, count = 1;
    if (!parse_u64(words->word[1], SIZE_MAX, &bytes, reply))
        return false;
    if (!parse_optional(words, 2, UINT32_MAX, &count, reply))
        return false;
    struct tally tally = { 0 };
    uint64_t succeeded = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t failed = tally.failed;
        void *address = tally_alloc(&tally, bytes);
        if (tally.failed != failed)
            continue;
        slot_add(address, bytes);
        if (succeeded++ < SHOWN_ADDRESSES)
            reply_add(reply, "%s0x%lx", reply->length ? " " : "", (uintptr_t)address);
    }
    truth_add(&tally);
    if (succeeded > SHOWN_ADDRESSES)
        reply_add(reply, " ... %lu more", (succeeded - SHOWN_ADDRESSES));
    if (tally.failed)
        reply_add(reply, "%serror=%d failed=%lu", reply->length ? " " : "", tally.last_error,
                  tally.failed);
    return true;
}

CALL_SITE static bool run_free(struct words *words, struct reply *reply)
{
    uint64_t first, count = 1;
    if (!parse_u64(words->word[1], SIZE_MAX, &first, reply))
        return false;
    if (!parse_optional(words, 2, SIZE_MAX, &count, reply))
        return false;
    if (first >= slot_count || count > slot_count - first) {
        reply_add(reply, "there are %zu slots", slot_count);
        return false;
    }
    struct tally tally = { 0 };
    uint64_t dead = 0;
    for (size_t i = first; i < first + count; i++) {
        struct slot *slot = &slots[i];
        if (!slot->live)
            dead++;
        else
            slot->live = !tally_free(&tally, slot->address, slot->bytes);
    }
    return reply_frees(reply, &tally, dead);
}

/* Any address, live or not: for double frees and frees of invalid addresses. */
CALL_SITE static bool run_freeaddr(struct words *words, struct reply *reply)
{
    uint64_t address;
    if (!parse_u64(words->word[1], UINTPTR_MAX, &address, reply))
        return false;
    struct slot none = { 0 }, *slot = &none;
    struct kslot *kslot = NULL;
    for (size_t i = 0; i < slot_count; i++)
        if (slots[i].live && slots[i].address == (void *)address)
            slot = &slots[i];
    for (size_t i = 0; slot == &none && i < kslot_count(); i++)
        if (kslot_at(i)->live && kslot_at(i)->handle == address)
            kslot = kslot_at(i);
    struct tally tally = { 0 };
    if (kslot)
        kslot_freed(&tally, kslot, api.release((void *)address));
    else if (tally_free(&tally, (void *)address, slot->bytes))
        slot->live = false;
    return reply_frees(reply, &tally, 0);
}

CALL_SITE static bool run_freenull(struct words *words, struct reply *reply)
{
    uint64_t count = 1;
    if (!parse_optional(words, 1, UINT32_MAX, &count, reply))
        return false;
    struct tally tally = { 0 };
    for (uint64_t i = 0; i < count; i++)
        tally_free(&tally, NULL, 0);
    truth_add(&tally);
    reply_add(reply, "nullfrees=%lu failed=%lu", tally.nullfrees, tally.failed);
    return true;
}

CALL_SITE static bool run_freeall(struct words *words, struct reply *reply)
{
    (void)words;
    struct tally tally = { 0 };
    for (size_t i = 0; i < slot_count; i++)
        if (slots[i].live)
            slots[i].live = !tally_free(&tally, slots[i].address, slots[i].bytes);
    return reply_frees(reply, &tally, 0);
}

CALL_SITE static bool run_setdevice(struct words *words, struct reply *reply)
{
    uint64_t device;
    if (!parse_u64(words->word[1], INT32_MAX, &device, reply))
        return false;
    int error = api.set_device((int)device);
    if (!error) {
        thread_device = (int)device;
        thread_context = NULL;
    }
    return reply_error(reply, error);
}

CALL_SITE static bool run_getdevice(struct words *words, struct reply *reply)
{
    (void)words;
    int device = -1;
    int error = api.get_device(&device);
    if (!error)
        reply_add(reply, "%d", device);
    return reply_error(reply, error);
}

CALL_SITE static bool run_synchronize(struct words *words, struct reply *reply)
{
    (void)words;
    return reply_error(reply, api.synchronize());
}

/* The device's memory is freed without a free call: the totals lose those blocks, and count no
 * frees. */
CALL_SITE static bool run_reset(struct words *words, struct reply *reply)
{
    (void)words;
    int error = api.reset();
    if (error)
        return reply_error(reply, error);
    struct tally tally = { 0 };
    thread_context = NULL; /* the backend made its own current again */
    modules_forget_context(thread_device, NULL);
    streams_forget_context(thread_device, NULL);
    slots_end_context(&tally, thread_device, NULL);
    truth_add(&tally);
    reply_add(reply, "released=%ld", -tally.live);
    return true;
}

static bool run_info(struct words *words, struct reply *reply)
{
    (void)words;
    int devices = 0, device = 0;
    size_t free_bytes = 0, total_bytes = 0;
    int error = api.device_count(&devices);
    if (!error)
        error = api.get_device(&device);
    if (!error)
        error = api.memory(&free_bytes, &total_bytes);
    if (!error)
        reply_add(reply, "backend=%s devices=%d device=%d free=%zu total=%zu slots=%zu", api.name,
                  devices, device, free_bytes, total_bytes, slot_count);
    return reply_error(reply, error);
}

static bool run_load(struct words *words, struct reply *reply)
{
    const char *reason = api.load ? api.load(words->word[1]) : "this program is linked already";
    if (reason)
        reply_add(reply, "%s", reason);
    return reason == NULL;
}

const struct command memory_commands[] = {
    { "load", "load PATH", 1, 1, 0, run_load },
    { "info", "info", 0, 0, NEEDS_API, run_info },
    { "alloc", "alloc SIZE [COUNT]", 1, 2, NEEDS_API, run_alloc },
    { "free", "free FIRST [COUNT]", 1, 2, NEEDS_API, run_free },
    { "freeaddr", "freeaddr ADDRESS", 1, 1, NEEDS_API, run_freeaddr },
    { "freenull", "freenull [COUNT]", 0, 1, NEEDS_API, run_freenull },
    { "freeall", "freeall", 0, 0, NEEDS_API, run_freeall },
    { "setdevice", "setdevice DEVICE", 1, 1, NEEDS_API, run_setdevice },
    { "getdevice", "getdevice", 0, 0, NEEDS_API, run_getdevice },
    { "synchronize", "synchronize", 0, 0, NEEDS_API, run_synchronize },
    { "reset", "reset", 0, 0, NEEDS_API, run_reset },
    { .name = NULL },
};
