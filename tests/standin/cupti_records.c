/* Stand-in libcupti: records in the layout of each release of CUPTI. */
#define _GNU_SOURCE
#include "cupti_internal.h"

#include <string.h>
#include <unistd.h>

#define NO_ID (release == V13_5 ? 0 : UINT32_MAX)

static const struct layout {
    uint32_t kind;
    uint16_t bytes[RELEASES];
} layouts[] = {
    { ACTIVITY_MEMCPY, { 88, 88, 88, 96, 96, 112 } },
    { ACTIVITY_MEMSET, { 88, 88, 88, 88, 88, 104 } },
    { KIND_SERIAL_KERNEL, { 200, 208, 208, 208, 216, 248 } },
    { ACTIVITY_DRIVER, { 40, 40, 40, 40, 40, 40 } },
    { ACTIVITY_RUNTIME, { 40, 40, 40, 40, 40, 40 } },
    { ACTIVITY_DEVICE, { 176, 176, 184, 184, 184, 192 } },
    { ACTIVITY_CONTEXT, { 16, 16, 24, 32, 32, 40 } },
    { ACTIVITY_KERNEL, { 200, 208, 208, 208, 216, 248 } },
    { KIND_NAME, { 32, 32, 32, 32, 32, 32 } },
    { KIND_MARKER, { 56, 56, 56, 56, 56, 56 } },
    { KIND_OVERHEAD, { 40, 40, 56, 56, 56, 56 } },
    { ACTIVITY_MEMCPY2, { 96, 96, 96, 96, 96, 96 } },
    { ACTIVITY_STREAM, { 24, 24, 24, 24, 24, 24 } },
    { ACTIVITY_SYNC, { 40, 40, 40, 56, 56, 56 } },
    { KIND_EXTERNAL_CORRELATION, { 24, 24, 24, 24, 24, 24 } },
    { ACTIVITY_MEMORY, { 120, 120, 120, 128, 128, 128 } },
    { ACTIVITY_POOL, { 72, 72, 72, 72, 80, 80 } },
    { ACTIVITY_GRAPH, { 48, 48, 56, 56, 56, 56 } },
    { KIND_JIT, { 64, 64, 72, 72, 72, 72 } },
};

static size_t bytes_of(uint32_t kind)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].kind == kind)
            return layouts[i].bytes[release];
    return 0;
}

size_t record_bytes(const uint8_t *record)
{
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    return bytes_of(kind);
}

static void put32(uint8_t *record, size_t offset, uint32_t value)
{
    memcpy(record + offset, &value, sizeof value);
}

static void put64(uint8_t *record, size_t offset, uint64_t value)
{
    memcpy(record + offset, &value, sizeof value);
}

static void put_text(uint8_t *record, size_t offset, const char *text)
{
    put64(record, offset, (uintptr_t)text);
}

/* A field that older releases do not have. */
#define SINCE(first) if (release >= (first))

static const char *kernel_name(const char *name)
{
    static char huge[64 << 10];
    if (faults.null_names)
        return NULL;
    if (faults.wild_names)
        return (const char *)16;
    if (!faults.huge_names)
        return name;
    if (!*huge)
        memset(huge, 'k', sizeof huge - 1);
    return huge;
}

static void write_call(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    put32(r, 4, cbid_of((int)a->kind, a->function));
    put64(r, 8, a->start_ns);
    put64(r, 16, end_ns);
    put32(r, 24, (uint32_t)getpid());
    put32(r, 28, a->tid);
    put32(r, 32, a->correlation);
    put32(r, 36, (uint32_t)a->result);
}

static void write_kernel(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    r[6] = 32; /* registers per thread */
    put64(r, 16, a->start_ns);
    put64(r, 24, end_ns);
    put32(r, 40, a->device);
    put32(r, 44, a->context);
    put32(r, 48, a->stream);
    for (size_t i = 0; i < 3; i++) {
        put32(r, 52 + 4 * i, a->grid[i]);
        put32(r, 64 + 4 * i, a->block[i]);
    }
    put32(r, 80, a->shared_bytes);
    put32(r, 92, a->correlation);
    put64(r, 96, a->correlation);
    put_text(r, 104, kernel_name(a->name));
    put64(r, 144, a->graph_node);
    put32(r, 156, a->graph ? a->graph : NO_ID);
    put32(r, 168, 9); /* channel */
    put32(r, 172, 1); /* for computing */
}

static void write_copy(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    bool peer = a->kind == ACTIVITY_MEMCPY2;
    r[4] = a->copy_kind;
    r[5] = a->source_kind;
    r[6] = a->destination_kind;
    r[7] = a->asynchronous;
    put64(r, 8, a->bytes);
    put64(r, 16, a->start_ns);
    put64(r, 24, end_ns);
    put32(r, 32, a->device);
    put32(r, 36, a->context);
    put32(r, 40, a->stream);
    put32(r, peer ? 60 : 44, a->correlation);
    if (peer) {
        put32(r, 44, a->source_device);
        put32(r, 48, a->source_context);
        put32(r, 52, a->destination_device);
        put32(r, 56, a->destination_context);
        put32(r, 80, NO_ID);
        return;
    }
    put32(r, 48, a->correlation);
    put32(r, 72, NO_ID);
    SINCE(V12_8)
    put64(r, 88, 1);
}

static void write_set(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    put32(r, 4, a->value);
    put64(r, 8, a->bytes);
    put64(r, 16, a->start_ns);
    put64(r, 24, end_ns);
    put32(r, 32, a->device);
    put32(r, 36, a->context);
    put32(r, 40, a->stream);
    put32(r, 44, a->correlation);
    r[48] = a->asynchronous;
    r[50] = (uint8_t)a->memory_kind;
    put32(r, 72, NO_ID);
}

static void write_memory(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    (void)end_ns;
    put32(r, 4, a->operation);
    put32(r, 8, a->memory_kind);
    put32(r, 12, a->correlation);
    put64(r, 16, a->address);
    put64(r, 24, a->bytes);
    put64(r, 32, a->start_ns);
    put32(r, 48, (uint32_t)getpid());
    put32(r, 52, a->device);
    put32(r, 56, a->context);
    put32(r, 60, NO_ID);
    put32(r, 72, a->asynchronous);
    SINCE(V12_8)
    put_text(r, 120, "libstandin.so");
}

static void write_pool(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    (void)end_ns;
    put32(r, 4, a->operation);
    put32(r, 8, 1); /* local */
    put32(r, 12, a->correlation);
    put32(r, 16, (uint32_t)getpid());
    put32(r, 20, a->device);
    put64(r, 32, a->address);
    put64(r, 40, a->bytes);
    put64(r, 56, a->start_ns);
}

static void write_wait(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    put32(r, 4, a->wait);
    put64(r, 8, a->start_ns);
    put64(r, 16, end_ns);
    put32(r, 24, a->correlation);
    put32(r, 28, a->context);
    put32(r, 32, a->stream == UINT32_MAX ? NO_ID : a->stream);
    put32(r, 36, NO_ID);
}

static void write_graph(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    put32(r, 4, a->correlation);
    put64(r, 8, a->start_ns);
    put64(r, 16, end_ns);
    put32(r, 24, a->device);
    put32(r, 28, a->graph);
    put32(r, 32, a->context);
    put32(r, 36, a->stream);
    SINCE(V12_4)
    {
        put32(r, 48, a->device);
        put32(r, 52, a->context);
    }
}

static void write_stream(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    (void)end_ns;
    put32(r, 4, a->context);
    put32(r, 8, a->stream);
    put32(r, 16, a->value + 1); /* default, non-blocking */
    put32(r, 20, a->correlation);
}

static void write_context(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    (void)end_ns;
    put32(r, 4, a->context);
    put32(r, 8, a->device);
    r[12] = 1; /* CUDA */
    r[14] = 7; /* stream of NULL */
    SINCE(V12_4)
    put32(r, 16, NO_ID);
    SINCE(V12_8)
    r[22] = 132;
}

/* As an H200's real record describes it. */
static void write_device(uint8_t *r, const struct activity *a, uint64_t end_ns)
{
    static const struct {
        size_t offset;
        uint32_t value;
    } numbers[] = {
        { 24, 65536 }, { 28, 62914560 },  { 32, 32 },    { 36, 1980000 }, { 40, 3 },
        { 44, 132 },   { 52, 64 },        { 56, 32 },    { 60, 233472 },  { 64, 65536 },
        { 68, 65536 }, { 72, 49152 },     { 76, 1024 },  { 80, 1024 },    { 84, 1024 },
        { 88, 64 },    { 92, INT32_MAX }, { 96, 65535 }, { 100, 65535 },  { 104, 9 },
        { 108, 0 },    { 116, 1 },
    };
    (void)end_ns;
    put64(r, 8, 4814000000);
    put64(r, 16, 150754820096);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put32(r, numbers[i].offset, numbers[i].value);
    put32(r, 112, a->device);
    r[120 + 15] = (uint8_t)a->device;
    put_text(r, 136, "NVIDIA H200");
    r[144] = 1; /* visible */
}

size_t record_write(uint8_t record[RECORD_MAX], const struct activity *activity, uint32_t kind,
                    uint64_t end_ns)
{
    static void (*const writers[KIND_COUNT])(uint8_t *, const struct activity *, uint64_t) = {
        [ACTIVITY_MEMCPY] = write_copy,      [ACTIVITY_MEMCPY2] = write_copy,
        [ACTIVITY_MEMSET] = write_set,       [ACTIVITY_DRIVER] = write_call,
        [ACTIVITY_RUNTIME] = write_call,     [ACTIVITY_DEVICE] = write_device,
        [ACTIVITY_CONTEXT] = write_context,  [ACTIVITY_KERNEL] = write_kernel,
        [KIND_SERIAL_KERNEL] = write_kernel, [ACTIVITY_STREAM] = write_stream,
        [ACTIVITY_SYNC] = write_wait,        [ACTIVITY_MEMORY] = write_memory,
        [ACTIVITY_POOL] = write_pool,        [ACTIVITY_GRAPH] = write_graph,
    };
    size_t bytes = bytes_of(kind);
    if (!bytes || !writers[kind])
        return 0;
    memset(record, 0, bytes);
    put32(record, 0, kind);
    struct activity timed = *activity;
    if (faults.zero_times)
        timed.start_ns = end_ns = 0;
    writers[kind](record, &timed, end_ns);
    return bytes;
}

size_t record_write_extra(uint8_t record[RECORD_MAX], uint32_t kind, uint64_t now_ns)
{
    size_t bytes = bytes_of(kind);
    memset(record, 0, bytes);
    put32(record, 0, kind);
    switch (kind) {
    case KIND_NAME:
        put32(record, 4, 2); /* a thread */
        put32(record, 8, (uint32_t)getpid());
        put32(record, 12, (uint32_t)gettid());
        put_text(record, 24, "feeder");
        break;
    case KIND_MARKER:
        put32(record, 4, 1); /* a moment */
        put64(record, 8, now_ns);
        put32(record, 16, 1);
        put32(record, 20, 2);
        put32(record, 24, (uint32_t)getpid());
        put32(record, 28, (uint32_t)gettid());
        put_text(record, 40, "epoch");
        put_text(record, 48, "trainer");
        break;
    case KIND_EXTERNAL_CORRELATION:
        put32(record, 4, 3);
        put64(record, 8, 4711);
        put32(record, 16, 1);
        break;
    case KIND_OVERHEAD:
        put32(record, 4, 1 << 16); /* of a flush */
        put32(record, 8, 2);
        put32(record, 12, (uint32_t)getpid());
        put32(record, 16, (uint32_t)gettid());
        put64(record, 24, now_ns - 1000);
        put64(record, 32, now_ns);
        break;
    default:
        break;
    }
    return bytes;
}
