/* Slots of memory with a kind, and the totals by kind. */
#include "workload_kinds.h"

#include <stdio.h>
#include <stdlib.h>

#include "workload.h"

#define SHOWN_HANDLES 16

const struct memory_kind_row memory_kinds[MEMORY_KINDS_COUNT] = {
#define ROW(constant, name, on_gpu, ends_with_context) \
    [KIND_##constant] = { #name, on_gpu, ends_with_context },
    MEMORY_KINDS(ROW)
#undef ROW
};

_Thread_local void *thread_context;

/* One command runs at a time, on whichever thread: no lock. */
static struct kslot *kslots;
static size_t count, capacity;

static void tally_change(struct tally *tally, enum memory_kind kind, int64_t live, int64_t bytes,
                         bool on_host)
{
    tally->kinds[kind].live += live;
    tally->kinds[kind].bytes += bytes;
    if (!memory_kinds[kind].on_gpu || on_host)
        return;
    tally->live += live;
    tally->bytes += bytes;
}

void tally_gain(struct tally *tally, enum memory_kind kind, size_t bytes, bool on_host)
{
    tally_change(tally, kind, 1, (int64_t)bytes, on_host);
}

void tally_lose(struct tally *tally, enum memory_kind kind, size_t bytes, bool on_host)
{
    tally_change(tally, kind, -1, -(int64_t)bytes, on_host);
}

size_t kslot_add(struct tally *tally, struct kslot slot)
{
    if (count == capacity) {
        capacity = capacity ? 2 * capacity : 256;
        kslots = realloc(kslots, capacity * sizeof *kslots);
        if (!kslots) {
            perror("workload: kslots");
            abort();
        }
    }
    slot.live = true;
    slot.device = thread_device;
    slot.context = thread_context;
    if (slot.release)
        tally->allocs++;
    tally_gain(tally, slot.kind, slot.bytes, slot.on_host);
    kslots[count] = slot;
    return count++;
}

size_t kslot_count(void)
{
    return count;
}

struct kslot *kslot_at(size_t number)
{
    return number < count ? &kslots[number] : NULL;
}

struct kslot *kslot_named(const char *word, struct reply *reply)
{
    uint64_t number;
    if (!parse_u64(word, SIZE_MAX, &number, reply))
        return NULL;
    if (number >= count)
        reply_add(reply, "there are %zu kslots", count);
    return kslot_at(number);
}

bool kslot_release(struct tally *tally, struct kslot *slot)
{
    slot->kept = false;
    return kslot_freed(tally, slot, slot->release(slot));
}

bool kslot_freed(struct tally *tally, struct kslot *slot, int error)
{
    if (!tally_result(tally, error))
        return false;
    tally->frees++;
    if (!slot->kept)
        kslot_end(tally, slot);
    return true;
}

void kslot_end(struct tally *tally, struct kslot *slot)
{
    if (!slot->live)
        return;
    slot->live = false;
    tally_lose(tally, slot->kind, slot->bytes, slot->on_host);
}

void kslots_end_context(struct tally *tally, int device, const void *context)
{
    for (size_t i = 0; i < count; i++)
        if (kslots[i].device == device && kslots[i].context == context &&
            (kslots[i].with_context || memory_kinds[kslots[i].kind].ends_with_context))
            kslot_end(tally, &kslots[i]);
}

void kslots_end_owned(struct tally *tally, const void *owner)
{
    for (size_t i = 0; i < count; i++)
        if (kslots[i].owner == owner)
            kslot_end(tally, &kslots[i]);
}

void kslots_forget(void)
{
    count = 0;
}

void reply_handle(struct reply *reply, uint64_t shown, uint64_t handle)
{
    if (shown < SHOWN_HANDLES)
        reply_add(reply, "%s0x%lx", reply->length ? " " : "", handle);
    else if (shown == SHOWN_HANDLES)
        reply_add(reply, " ...");
}
