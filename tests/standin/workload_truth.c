/* The running totals, the numbered slots, and small helpers. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "workload.h"

struct truth {
    atomic_uint_least64_t allocs, frees, failed, nullfrees;
    atomic_int_least64_t live, bytes;
    struct {
        atomic_int_least64_t live, bytes;
    } kinds[MEMORY_KINDS_COUNT];
#define FIELD(name) atomic_uint_least64_t name;
    WORK_FIELDS(FIELD)
#undef FIELD
};

static struct truth own_truth;
static struct truth *truth = &own_truth;

void truth_add(const struct tally *tally)
{
    atomic_fetch_add(&truth->allocs, tally->allocs);
    atomic_fetch_add(&truth->frees, tally->frees);
    atomic_fetch_add(&truth->failed, tally->failed);
    atomic_fetch_add(&truth->nullfrees, tally->nullfrees);
    atomic_fetch_add(&truth->live, tally->live);
    atomic_fetch_add(&truth->bytes, tally->bytes);
    for (int kind = 0; kind < MEMORY_KINDS_COUNT; kind++) {
        atomic_fetch_add(&truth->kinds[kind].live, tally->kinds[kind].live);
        atomic_fetch_add(&truth->kinds[kind].bytes, tally->kinds[kind].bytes);
    }
#define FIELD(name) atomic_fetch_add(&truth->name, tally->name);
    WORK_FIELDS(FIELD)
#undef FIELD
}

void tally_add(struct tally *total, const struct tally *part)
{
    total->allocs += part->allocs;
    total->frees += part->frees;
    total->failed += part->failed;
    total->nullfrees += part->nullfrees;
    total->live += part->live;
    total->bytes += part->bytes;
    for (int kind = 0; kind < MEMORY_KINDS_COUNT; kind++) {
        total->kinds[kind].live += part->kinds[kind].live;
        total->kinds[kind].bytes += part->kinds[kind].bytes;
    }
    if (part->last_error)
        total->last_error = part->last_error;
#define FIELD(name) total->name += part->name;
    WORK_FIELDS(FIELD)
#undef FIELD
}

static const char *format_truth(const struct truth *t, char *buffer, size_t size, bool json)
{
    int length = snprintf(buffer, size,
                          json ? "\"live\":%ld,\"bytes\":%ld,\"allocs\":%lu,\"frees\":%lu,"
                                 "\"failed\":%lu,\"nullfrees\":%lu"
                               : "live=%ld bytes=%ld allocs=%lu frees=%lu failed=%lu nullfrees=%lu",
                          t->live, t->bytes, t->allocs, t->frees, t->failed, t->nullfrees);
#define FIELD(name)                                            \
    length += snprintf(buffer + length, size - (size_t)length, \
                       json ? ",\"" #name "\":%lu" : " " #name "=%lu", t->name);
    WORK_FIELDS(FIELD) /* fits: TRUTH_TEXT_BYTES holds the longest numbers */
#undef FIELD
    for (int kind = 0; kind < MEMORY_KINDS_COUNT; kind++)
        length += snprintf(buffer + length, size - (size_t)length,
                           json ? ",\"%s_live\":%ld,\"%s_bytes\":%ld" : " %s_live=%ld %s_bytes=%ld",
                           memory_kinds[kind].name, t->kinds[kind].live, memory_kinds[kind].name,
                           t->kinds[kind].bytes);
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
    return sizeof(struct truth);
}

void truth_restart_in(void *shared)
{
    truth = shared;
}

void reply_add(struct reply *reply, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t left = sizeof reply->text - reply->length;
    int written = vsnprintf(reply->text + reply->length, left, format, arguments);
    va_end(arguments);
    if (written > 0)
        reply->length += (size_t)written < left ? (size_t)written : left - 1;
}

void reply_tally(struct reply *reply, const struct tally *tally)
{
    reply_add(reply, "allocs=%lu frees=%lu failed=%lu", tally->allocs, tally->frees, tally->failed);
}

void reply_failures(struct reply *reply, const struct tally *tally)
{
    if (tally->failed)
        reply_add(reply, " failed=%lu error=%d", tally->failed, tally->last_error);
}

bool reply_error(struct reply *reply, int error)
{
    if (error)
        reply_add(reply, "CUDA error %d", error);
    return error == 0;
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

bool parse_u64(const char *word, uint64_t max, uint64_t *value, struct reply *reply)
{
    char *end;
    errno = 0;
    *value = strtoull(word, &end, 0);
    if (*word == '-' || end == word || *end || errno || *value > max) {
        reply_add(reply, "%s: expected a number from 0 to %lu", word, max);
        return false;
    }
    return true;
}

bool parse_optional(const struct words *words, int number, uint64_t max, uint64_t *value,
                    struct reply *reply)
{
    return words->count <= number || parse_u64(words->word[number], max, value, reply);
}

bool parse_double(const char *word, double max, double *value, struct reply *reply)
{
    char *end;
    *value = strtod(word, &end);
    if (end == word || *end || !(*value >= 0 && *value <= max)) {
        reply_add(reply, "%s: expected a number from 0 to %g", word, max);
        return false;
    }
    return true;
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
