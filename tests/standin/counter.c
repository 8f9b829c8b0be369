/*
 * An injection that has the stand-in CUPTI record everything and counts what
 * comes: at the exit standard error gets "records KIND=COUNT ... dropped=COUNT
 * bytes=COPIED". For the check of the stand-in by itself.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupti_internal.h"

#define BUFFER_BYTES (64u << 10)

static CUptiResult (*next_record)(uint8_t *, size_t, uint8_t **);
static CUptiResult (*flush_all)(uint32_t);
static CUptiResult (*dropped_records)(void *, uint32_t, size_t *);
static unsigned long long counts[KIND_COUNT], copied;

static void requested(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = malloc(BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *most = 0;
}

/* For one thread at a time: counted programs have one. */
static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    uint8_t *record = NULL;
    while (!next_record(buffer, valid, &record)) {
        uint32_t kind;
        uint64_t bytes;
        memcpy(&kind, record, sizeof kind);
        memcpy(&bytes, record + 8, sizeof bytes);
        if (kind < KIND_COUNT)
            counts[kind]++;
        if (kind == ACTIVITY_MEMCPY || kind == ACTIVITY_MEMCPY2)
            copied += bytes;
    }
    free(buffer);
}

static void at_exit(void)
{
    size_t dropped = 0;
    flush_all(1);
    dropped_records(NULL, 0, &dropped);
    fputs("records", stderr);
    for (int kind = 0; kind < KIND_COUNT; kind++)
        if (counts[kind])
            fprintf(stderr, " %d=%llu", kind, counts[kind]);
    fprintf(stderr, " dropped=%zu bytes=%llu\n", dropped, copied);
}

__attribute__((visibility("default"))) int InitializeInjection(void)
{
    void *cupti = dlopen("libcupti.so.13", RTLD_NOW);
    CUptiResult (*register_callbacks)(void *, void *) = NULL;
    CUptiResult (*enable)(int) = NULL;
    if (!cupti)
        return 1;
    *(void **)&register_callbacks = dlsym(cupti, "cuptiActivityRegisterCallbacks");
    *(void **)&enable = dlsym(cupti, "cuptiActivityEnable");
    *(void **)&next_record = dlsym(cupti, "cuptiActivityGetNextRecord");
    *(void **)&flush_all = dlsym(cupti, "cuptiActivityFlushAll");
    *(void **)&dropped_records = dlsym(cupti, "cuptiActivityGetNumDroppedRecords");
    register_callbacks((void *)requested, (void *)completed);
    for (int kind = 1; kind < KIND_COUNT; kind++)
        if (kind != ACTIVITY_GRAPH)
            enable(kind);
    atexit(at_exit);
    return 1;
}
