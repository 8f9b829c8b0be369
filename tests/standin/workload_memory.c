/* Commands that allocate, free and choose devices, one call after another. */
#include <stdlib.h>
#include <string.h>

#include "workload.h"

CALL_SITE static bool run_alloc(const struct args *args, struct reply *reply)
{
    struct tally tally = { 0 };
    uint64_t shown = 0;
    for (uint64_t i = 0; i < args->number[1]; i++) {
        uint64_t failed = tally.failed;
        void *address = tally_alloc(&tally, args->number[0]);
        if (tally.failed != failed)
            continue;
        block_add(address, args->number[0]);
        reply_handle(reply, shown++, (uintptr_t)address);
    }
    return reply_done(reply, &tally);
}

/* The slots from FIRST on. A free that fails leaves a slot alive. */
static bool free_slots(struct list *list, const struct args *args, struct reply *reply)
{
    uint64_t first = args->number[0], count = args->number[1], dead = 0;
    if (first >= list->count || count > list->count - first)
        return reply_no(reply, "there are %zu %ss", list->count, list->what);
    struct tally tally = { 0 };
    for (size_t i = first; i < first + count; i++) {
        struct slot *slot = list_at(list, i);
        if (!slot->live || !slot->release)
            dead++;
        else
            slot_release(&tally, slot);
    }
    return reply_frees(reply, &tally, dead);
}

CALL_SITE static bool run_free(const struct args *args, struct reply *reply)
{
    return free_slots(&blocks, args, reply);
}

CALL_SITE static bool run_kfree(const struct args *args, struct reply *reply)
{
    return free_slots(&slots, args, reply);
}

static bool free_all(struct list *list, struct reply *reply)
{
    struct tally tally = { 0 };
    struct slot *slot;
    FOR_EACH(slot, list)
    if (slot->live && slot->release)
        slot_release(&tally, slot);
    return reply_frees(reply, &tally, 0);
}

CALL_SITE static bool run_freeall(const struct args *args, struct reply *reply)
{
    (void)args;
    return free_all(&blocks, reply);
}

CALL_SITE static bool run_kfreeall(const struct args *args, struct reply *reply)
{
    (void)args;
    return free_all(&slots, reply);
}

/* Any address, live or not: for double frees and frees of invalid addresses. */
CALL_SITE static bool run_freeaddr(const struct args *args, struct reply *reply)
{
    struct slot *slot, *found = NULL;
    FOR_EACH(slot, &slots)
    if (slot->live && slot->handle == args->number[0])
        found = slot;
    FOR_EACH(slot, &blocks)
    if (slot->live && slot->handle == args->number[0])
        found = slot;
    struct tally tally = { 0 };
    struct slot none = { .live = false };
    slot_freed(&tally, found ? found : &none, api.release((void *)args->number[0]));
    if (!args->number[0]) {
        tally.nullfrees += tally.frees;
        tally.frees = 0;
    }
    return reply_frees(reply, &tally, 0);
}

CALL_SITE static bool run_freenull(const struct args *args, struct reply *reply)
{
    struct tally tally = { 0 };
    for (uint64_t i = 0; i < args->number[0]; i++)
        tally_free(&tally, NULL, 0);
    truth_add(&tally);
    reply_add(reply, "nullfrees=%lu failed=%lu", tally.nullfrees, tally.failed);
    return true;
}

/* The runtime takes NULL for nothing to do, the driver for an error. */
static bool run_kfreenull(const struct args *args, struct reply *reply)
{
    const char *what = args->text[0];
    int (*release)(void *) = !strcmp(what, "pinned")  ? api.pinned_free
                             : !strcmp(what, "array") ? api.array_free
                                                      : api.mipmap_free;
    struct tally tally = { 0 };
    tally.nullfrees += tally_result(&tally, release(NULL));
    return reply_frees(reply, &tally, 0);
}

CALL_SITE static bool run_setdevice(const struct args *args, struct reply *reply)
{
    int error = api.set_device((int)args->number[0]);
    if (!error) {
        thread_device = (int)args->number[0];
        thread_context = NULL;
    }
    return reply_error(reply, error);
}

CALL_SITE static bool run_getdevice(const struct args *args, struct reply *reply)
{
    (void)args;
    int device = -1;
    int error = api.get_device(&device);
    if (!error)
        reply_add(reply, "%d", device);
    return reply_error(reply, error);
}

CALL_SITE static bool run_synchronize(const struct args *args, struct reply *reply)
{
    (void)args;
    return reply_error(reply, api.synchronize());
}

/* The device's memory is freed without a free call: the totals lose those blocks, and count no
 * frees. */
CALL_SITE static bool run_reset(const struct args *args, struct reply *reply)
{
    (void)args;
    struct tally tally = { 0 };
    if (!reply_error(reply, api.reset()))
        return false;
    thread_context = NULL; /* the backend made its own current again */
    modules_forget_context(thread_device, NULL);
    streams_forget_context(thread_device, NULL);
    slots_end_context(&tally, thread_device, NULL);
    truth_add(&tally);
    reply_add(reply, "released=%ld", -tally.gpu.live);
    return true;
}

static bool run_info(const struct args *args, struct reply *reply)
{
    (void)args;
    int devices = 0, device = 0;
    size_t free_bytes = 0, total_bytes = 0;
    int error = api.device_count(&devices);
    if (!error)
        error = api.get_device(&device);
    if (!error)
        error = api.memory(&free_bytes, &total_bytes);
    if (!error)
        reply_add(reply, "backend=%s devices=%d device=%d free=%zu total=%zu slots=%zu", api.name,
                  devices, device, free_bytes, total_bytes, blocks.count);
    return reply_error(reply, error);
}

static bool run_load(const struct args *args, struct reply *reply)
{
    const char *reason = api.load ? api.load(args->text[0]) : "this program is linked already";
    return !reason || reply_no(reply, "%s", reason);
}

static bool run_kslots(const struct args *args, struct reply *reply)
{
    (void)args;
    const struct slot *slot;
    FOR_EACH(slot, &slots)
    reply_add(reply, "%s%zu=%s:0x%lx:%zu%s", reply->length ? " " : "", slot_number,
              memory_kinds[slot->kind].name, slot->handle, slot->bytes, slot->live ? "" : ":dead");
    return true;
}

const struct command memory_commands[] = {
    { "load <path>", 0, run_load },
    { "info", NEEDS_API, run_info },
    { "alloc SIZE [COUNT]", NEEDS_API, run_alloc },
    { "free FIRST [COUNT]", NEEDS_API, run_free },
    { "freeaddr ADDRESS", NEEDS_API, run_freeaddr },
    { "freenull [COUNT]", NEEDS_API, run_freenull },
    { "freeall", NEEDS_API, run_freeall },
    { "kfree FIRST [COUNT]", NEEDS_API, run_kfree },
    { "kfreeall", NEEDS_API, run_kfreeall },
    { "kfreenull <pinned|array|mipmap>", NEEDS_API, run_kfreenull },
    { "kslots", 0, run_kslots },
    { "setdevice DEVICE", NEEDS_API, run_setdevice },
    { "getdevice", NEEDS_API, run_getdevice },
    { "synchronize", NEEDS_API, run_synchronize },
    { "reset", NEEDS_API, run_reset },
    { .usage = NULL },
};
