/* The running totals, the lists and slots, and small helpers. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "workload.h"

#define SHOWN_HANDLES 16

const struct memory_kind_row memory_kinds[MEMORY_KINDS_COUNT] = {
#define ROW(constant, name, on_gpu, ends_with_context) \
    [KIND_##constant] = { #name, on_gpu, ends_with_context },
    MEMORY_KINDS(ROW)
#undef ROW
};

/* ---- the totals -------------------------------------------------------- */

/* In the order of struct tally, whose numbers are all of 64 bits. */
enum { NUMBERS = offsetof(struct tally, last_error) / sizeof(uint64_t) };

static atomic_uint_least64_t own_truth[NUMBERS], *truth = own_truth;

void truth_add(const struct tally *tally)
{
    for (int i = 0; i < NUMBERS; i++)
        atomic_fetch_add(&truth[i], ((const uint64_t *)tally)[i]);
}

void tally_add(struct tally *total, const struct tally *part)
{
    for (int i = 0; i < NUMBERS; i++)
        ((uint64_t *)total)[i] += ((const uint64_t *)part)[i];
    if (part->last_error)
        total->last_error = part->last_error;
}

static const char *format_truth(const void *numbers, char *buffer, size_t size, bool json)
{
    const struct tally *t = numbers;
    int length = 0;
#define NUMBER(prefix, name, value)                                        \
    length += snprintf(buffer + length, size - (size_t)length,             \
                       json ? "%s\"%s" name "\":%ld" : "%s%s" name "=%ld", \
                       length == 0 ? ""                                    \
                       : json      ? ","                                   \
                                   : " ",                                       \
                       prefix, (long)(value));
    NUMBER("", "live", t->gpu.live)
    NUMBER("", "bytes", t->gpu.bytes)
#define FIELD(name) NUMBER("", #name, t->name)
    COUNTS(FIELD) /* fits: TRUTH_TEXT_BYTES holds the longest numbers */
#undef FIELD
    for (int kind = 0; kind < MEMORY_KINDS_COUNT; kind++) {
        NUMBER(memory_kinds[kind].name, "_live", t->kinds[kind].live)
        NUMBER(memory_kinds[kind].name, "_bytes", t->kinds[kind].bytes)
    }
    return buffer;
}

const char *truth_text(char *buffer, size_t size, bool json)
{
    return format_truth(truth, buffer, size, json);
}

const char *truth_text_of(const void *shared, char *buffer, size_t size)
{
    return format_truth(shared, buffer, size, false);
}

size_t truth_size(void)
{
    return sizeof own_truth;
}

void truth_restart_in(void *shared)
{
    truth = shared;
}

/* ---- lists and slots --------------------------------------------------- */

size_t list_add(struct list *list, const void *item)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        list->items = realloc(list->items, list->capacity * list->item_bytes);
        if (!list->items) {
            perror("workload: list");
            abort();
        }
    }
    memcpy(list->items + list->count * list->item_bytes, item, list->item_bytes);
    return list->count++;
}

void *list_at(const struct list *list, uint64_t number)
{
    return number < list->count ? list->items + number * list->item_bytes : NULL;
}

void *list_named(const struct list *list, uint64_t number, struct reply *reply)
{
    bool *item = list_at(list, number);
    if (item && *item)
        return item;
    reply_add(reply, "no %s %lu of %zu", list->what, number, list->count);
    return NULL;
}

_Thread_local int thread_device;
_Thread_local void *thread_context;

struct list blocks = LIST(struct slot, "slot"), slots = LIST(struct slot, "kslot");

static int release_block(struct slot *slot)
{
    return api.release((void *)slot->handle);
}

static struct slot started(struct slot slot)
{
    slot.live = true;
    slot.device = thread_device;
    slot.context = thread_context;
    return slot;
}

void block_add(void *address, size_t bytes)
{
    struct slot slot = started(
        (struct slot){ .handle = (uintptr_t)address, .bytes = bytes, .release = release_block });
    slot.live = address != NULL;
    list_add(&blocks, &slot);
}

size_t slot_add(struct tally *tally, struct slot slot)
{
    slot = started(slot);
    if (slot.release)
        tally->allocs++;
    tally_change(tally, slot.kind, 1, (int64_t)slot.bytes, slot.on_host);
    return list_add(&slots, &slot);
}

struct slot *slot_of(enum memory_kind kind, uint64_t handle)
{
    struct slot *slot;
    FOR_EACH(slot, &slots)
    if (slot->live && slot->kind == kind && slot->handle == handle)
        return slot;
    return NULL;
}

bool slot_release(struct tally *tally, struct slot *slot)
{
    slot->kept = false;
    return slot_freed(tally, slot, slot->release(slot));
}

bool slot_freed(struct tally *tally, struct slot *slot, int error)
{
    if (!tally_result(tally, error))
        return false;
    tally->frees++;
    if (!slot->kept)
        slot_end(tally, slot);
    return true;
}

void slot_end(struct tally *tally, struct slot *slot)
{
    if (slot->live)
        tally_change(tally, slot->kind, -1, -(int64_t)slot->bytes, slot->on_host);
    slot->live = false;
}

static void end_context(struct list *list, struct tally *tally, int device, const void *context)
{
    struct slot *slot;
    FOR_EACH(slot, list)
    if (slot->device == device && slot->context == context &&
        (slot->with_context || memory_kinds[slot->kind].ends_with_context))
        slot_end(tally, slot);
}

void slots_end_context(struct tally *tally, int device, const void *context)
{
    end_context(&blocks, tally, device, context);
    end_context(&slots, tally, device, context);
}

void slots_end_owned(struct tally *tally, const void *owner)
{
    struct slot *slot;
    FOR_EACH(slot, &slots)
    if (slot->owner == owner)
        slot_end(tally, slot);
}

void slots_forget(void)
{
    blocks.count = slots.count = 0;
}

/* ---- replies ----------------------------------------------------------- */

static void add(struct reply *reply, const char *format, va_list arguments)
{
    size_t left = sizeof reply->text - reply->length;
    int written = vsnprintf(reply->text + reply->length, left, format, arguments);
    if (written > 0)
        reply->length += (size_t)written < left ? (size_t)written : left - 1;
}

void reply_add(struct reply *reply, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add(reply, format, arguments);
    va_end(arguments);
}

bool reply_no(struct reply *reply, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add(reply, format, arguments);
    va_end(arguments);
    return false;
}

void reply_tally(struct reply *reply, const struct tally *tally)
{
    reply_add(reply, "allocs=%lu frees=%lu failed=%lu", tally->allocs, tally->frees, tally->failed);
}

void reply_failures(struct reply *reply, const struct tally *tally)
{
    if (tally->failed)
        reply_add(reply, "%sfailed=%lu error=%d", reply->length ? " " : "", tally->failed,
                  tally->last_error);
}

bool reply_error(struct reply *reply, int error)
{
    return !error || reply_no(reply, "CUDA error %d", error);
}

bool reply_done(struct reply *reply, const struct tally *tally)
{
    truth_add(tally);
    reply_failures(reply, tally);
    return true;
}

bool reply_frees(struct reply *reply, const struct tally *tally, uint64_t dead)
{
    truth_add(tally);
    reply_add(reply, "frees=%lu failed=%lu", tally->frees, tally->failed);
    if (tally->failed)
        reply_add(reply, " error=%d", tally->last_error);
    if (dead)
        reply_add(reply, " dead=%lu", dead);
    return true;
}

void reply_handle(struct reply *reply, uint64_t shown, uint64_t handle)
{
    if (shown < SHOWN_HANDLES)
        reply_add(reply, "%s0x%lx", reply->length ? " " : "", handle);
    else if (shown == SHOWN_HANDLES)
        reply_add(reply, " ...");
}

void reply_hex(struct reply *reply, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        reply_add(reply, "%02x", ((const unsigned char *)bytes)[i]);
}

/* ---- words ------------------------------------------------------------- */

bool parse_hex(const char *text, void *bytes, size_t count, struct reply *reply)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(text) != 2 * count ||
            sscanf(text + 2 * i, "%2hhx", (unsigned char *)bytes + i) != 1)
            return reply_no(reply, "expected %zu bytes in hexadecimal digits", count);
    return true;
}

bool parse_u64(const char *word, uint64_t *value, struct reply *reply)
{
    char *end;
    errno = 0;
    *value = strtoull(word, &end, 0);
    return (*word != '-' && end != word && !*end && !errno) ||
           reply_no(reply, "%s: expected a number", word);
}

bool parse_double(const char *word, double max, double *value, struct reply *reply)
{
    char *end;
    *value = strtod(word, &end);
    return (end != word && !*end && *value >= 0 && *value <= max) ||
           reply_no(reply, "%s: expected a number from 0 to %g", word, max);
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sleep_until_ns(uint64_t time_ns)
{
    struct timespec time = { (time_t)(time_ns / 1000000000u), (long)(time_ns % 1000000000u) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        continue;
}

uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
