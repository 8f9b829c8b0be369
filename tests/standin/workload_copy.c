/*
 * Commands that copy and set memory. Each allocates what it needs and frees it
 * again: what the driver gives is counted as any other, ordinary memory is not.
 *
 * A copy's kind is what is copied to what; "2d", "3d" and "batch" go to the
 * device, "batch-3d-array" to an array, every other copy of "batch-mixed" back to
 * the host, and the second half of "prefetch-both" there. Without `via=` it is done by the first
 * function in the backend's table that can do it, which is a synchronous one
 * where there is one.
 */
#include <stdlib.h>
#include <string.h>

#include "workload.h"

static const struct shape {
    const char *name;
    enum place dst, src;
} shapes[COPY_KINDS] = {
    [COPY_H2D] = { "h2d", DEVICE, HOST },
    [COPY_D2H] = { "d2h", HOST, DEVICE },
    [COPY_D2D] = { "d2d", DEVICE, DEVICE },
    [COPY_H2H] = { "h2h", HOST, HOST },
    [COPY_DEFAULT_H2D] = { "default-h2d", DEVICE, HOST },
    [COPY_DEFAULT_D2H] = { "default-d2h", HOST, DEVICE },
    [COPY_DEFAULT_D2D] = { "default-d2d", DEVICE, DEVICE },
    [COPY_PEER] = { "peer", DEVICE, DEVICE },
    [COPY_2D_H2D] = { "2d", DEVICE, HOST },
    [COPY_2D_D2H] = { "2d-d2h", HOST, DEVICE },
    [COPY_2D_D2D] = { "2d-d2d", DEVICE, DEVICE },
    [COPY_3D_H2D] = { "3d", DEVICE, HOST },
    [COPY_3D_D2H] = { "3d-d2h", HOST, DEVICE },
    [COPY_3D_D2D] = { "3d-d2d", DEVICE, DEVICE },
    [COPY_BATCH] = { "batch", DEVICE, HOST },
    [COPY_BATCH_3D] = { "batch-3d", DEVICE, HOST },
    [COPY_BATCH_3D_ARRAY] = { "batch-3d-array", ARRAY, HOST },
    [COPY_H2A] = { "h2a", ARRAY, HOST },
    [COPY_A2H] = { "a2h", HOST, ARRAY },
    [COPY_D2A] = { "d2a", ARRAY, DEVICE },
    [COPY_A2D] = { "a2d", DEVICE, ARRAY },
    [COPY_A2A] = { "a2a", ARRAY, ARRAY },
    [COPY_BATCH_MIXED] = { "batch-mixed", DEVICE, HOST },
    [COPY_PREFETCH] = { "prefetch", DEVICE, HOST },
    [COPY_PREFETCH_HOST] = { "prefetch-host", DEVICE, HOST },
    [COPY_PREFETCH_DOMAIN] = { "prefetch-domain", DEVICE, HOST },
    [COPY_PREFETCH_BOTH] = { "prefetch-both", DEVICE, HOST },
};

static bool find_shape(const char *name, enum copy_kind *kind, struct reply *reply)
{
    for (int i = 0; i < COPY_KINDS; i++)
        if (!strcmp(shapes[i].name, name)) {
            *kind = (enum copy_kind)i;
            return true;
        }
    return reply_no(reply, "no copy %s", name);
}

static const struct copy_method *find_copy_method(enum copy_kind kind, const char *via,
                                                  struct reply *reply)
{
    const struct copy_method *method = api.copies;
    while (method->function &&
           (!(method->kinds & 1u << kind) || (via && strcmp(method->function, via))))
        method++;
    if (!method->function)
        reply_add(reply, "no copy %s via %s", shapes[kind].name, via ? via : "any function");
    return method->function ? method : NULL;
}

/* ---- memory for a copy ------------------------------------------------- */

struct buffer {
    void *address;
    enum place place;
    size_t bytes;
    bool pinned;
    bool given; /* named by the command: neither allocated nor freed here */
};

/* Arrays are not made by the stand-in: any handle but NULL is one. */
static void *const some_array = (void *)0xa4444444000;

/* Counted as any other memory: it is the driver's. */
static int take_pinned(struct buffer *buffer, struct tally *tally)
{
    int error = api.pinned_for_copy(&buffer->address, buffer->bytes);
    if (tally_result(tally, error)) {
        tally->allocs++;
        tally_change(tally, KIND_PINNED, 1, (int64_t)buffer->bytes, true);
    }
    return error;
}

static void release_pinned(const struct buffer *buffer, struct tally *tally)
{
    if (tally_result(tally, api.pinned_free(buffer->address))) {
        tally->frees++;
        tally_change(tally, KIND_PINNED, -1, -(int64_t)buffer->bytes, true);
    }
}

static int buffer_take(struct buffer *buffer, struct tally *tally)
{
    if (buffer->given)
        return 0;
    switch (buffer->place) {
    case ARRAY:
        buffer->address = some_array;
        return 0;
    case DEVICE:
        buffer->address = tally_alloc(tally, buffer->bytes);
        return buffer->address ? 0 : tally->last_error;
    default:
        if (buffer->pinned)
            return take_pinned(buffer, tally);
        buffer->address = malloc(buffer->bytes);
        return buffer->address ? 0 : -1;
    }
}

static void buffer_release(struct buffer *buffer, struct tally *tally)
{
    if (!buffer->address || buffer->given)
        return;
    if (buffer->place == DEVICE)
        tally_free(tally, buffer->address, buffer->bytes);
    else if (buffer->place == HOST && buffer->pinned)
        release_pinned(buffer, tally);
    else if (buffer->place == HOST)
        free(buffer->address);
}

/* ---- copies ------------------------------------------------------------ */

/* Rows and layers, as far as the bytes can be divided, and rows that are longer
 * than what is copied of them: who takes the pitch for the width counts more. */
static void set_rows(struct copy *copy)
{
    bool is_2d = copy->kind >= COPY_2D_H2D && copy->kind <= COPY_2D_D2D;
    bool is_3d = copy->kind >= COPY_3D_H2D && copy->kind <= COPY_3D_D2D;
    copy->width = copy->bytes;
    copy->height = copy->depth = 1;
    if (is_3d && copy->width % 2 == 0) {
        copy->depth = 2;
        copy->width /= 2;
    }
    if ((is_2d || is_3d) && copy->width % 4 == 0) {
        copy->height = 4;
        copy->width /= 4;
    }
    copy->pitch = is_2d || is_3d ? (copy->width / 512 + 1) * 512 : copy->width;
}

/* The other device, if there is one; it then belongs to the destination. */
static int set_devices(struct copy *copy)
{
    int devices;
    copy->src_device = copy->dst_device = thread_device;
    if (copy->kind != COPY_PEER)
        return 0;
    int error = api.device_count(&devices);
    if (!error && devices > 1)
        copy->dst_device = thread_device ? 0 : 1;
    return error;
}

static int take_buffers(const struct copy *copy, struct buffer *dst, struct buffer *src,
                        struct tally *tally)
{
    bool elsewhere = copy->dst_device != thread_device;
    int error = elsewhere ? api.set_device(copy->dst_device) : 0;
    if (!error)
        error = buffer_take(dst, tally);
    if (elsewhere) {
        int back_error = api.set_device(thread_device);
        error = error ? error : back_error;
    }
    return error ? error : buffer_take(src, tally);
}

/* Calls are timed one by one: the loop's own time is no transfer. */
CALL_SITE static uint64_t make_copies(struct tally *tally, const struct copy_method *method,
                                      const struct copy *copy, uint64_t count)
{
    uint64_t total_ns = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t start_ns = now_ns();
        int error = method->call(copy);
        uint64_t end_ns = now_ns();
        if (!tally_result(tally, error))
            continue;
        total_ns += end_ns - start_ns;
        tally->copies++;
        tally->copy_bytes += copy->bytes;
    }
    return total_ns;
}

static bool do_copy(struct copy *copy, const struct copy_method *method, uint64_t count,
                    bool pinned, bool captured, struct reply *reply)
{
    struct tally tally = { 0 };
    set_rows(copy);
    size_t reach = copy->pitch * copy->height * copy->depth;
    struct buffer dst = { copy->dst, copy->dst_place, reach ? reach : 1, pinned, copy->dst };
    struct buffer src = { copy->src, copy->src_place, reach ? reach : 1, pinned, copy->src };
    uint64_t ns = 0;
    int error = set_devices(copy);
    if (!error)
        error = take_buffers(copy, &dst, &src, &tally);
    if (!error) {
        copy->dst = dst.address;
        copy->src = src.address;
        ns = make_copies(&tally, method, copy, count);
    }
    if (captured) {
        reply_add(reply, "captured=%llu ", (unsigned long long)tally.copies);
        tally.copies = tally.copy_bytes = 0;
    }
    buffer_release(&src, &tally);
    buffer_release(&dst, &tally);
    truth_add(&tally);
    if (error)
        return reply_no(reply, "no memory for the copy: CUDA error %d", error);
    reply_add(reply, "calls=%lu bytes=%lu ns=%lu", tally.copies, tally.copy_bytes, ns);
    reply_add(reply, " bytes_per_second=%.0f",
              ns ? (double)tally.copy_bytes * 1e9 / (double)ns : 0);
    reply_failures(reply, &tally);
    return true;
}

struct batch *batch_of(const struct copy *copy)
{
    static _Thread_local struct batch batch;
    size_t part = copy->bytes / copy->parts;
    batch = (struct batch){ .attributes = { .srcAccessOrder = 1 } };
    for (size_t i = 0; i < copy->parts; i++) {
        batch.dsts[i] = (uintptr_t)copy->dst + i * part;
        batch.srcs[i] = (uintptr_t)copy->src + i * part;
        batch.sizes[i] = i + 1 < copy->parts ? part : copy->bytes - i * part;
        if (copy->kind == COPY_BATCH_MIXED && i % 2) {
            CUdeviceptr dst = batch.dsts[i];
            batch.dsts[i] = batch.srcs[i];
            batch.srcs[i] = dst;
        }
    }
    const char *where = copy->kind == COPY_PREFETCH_HOST     ? "host"
                        : copy->kind == COPY_PREFETCH_DOMAIN ? "domain"
                                                             : NULL;
    batch.locations[0] = location_named(where);
    batch.locations[1] = location_named("host");
    batch.location_indexes[1] = copy->parts / 2;
    batch.location_count = copy->kind == COPY_PREFETCH_BOTH ? 2 : 1;
    batch.stream = copy->stream ? copy->stream : CU_STREAM_PER_THREAD;
    return &batch;
}

static bool run_copy(const struct args *args, struct reply *reply)
{
    bool captured, pinned = args->number[5];
    struct copy copy = { .kind = COPY_H2D, .bytes = args->number[1] };
    copy.dst = (void *)args->number[6];
    copy.src = (void *)args->number[7];
    copy.parts = args->text[8] ? args->number[8] : BATCH_PARTS;
    if (!find_shape(args->text[0], &copy.kind, reply) ||
        !stream_named(args->text[4], &copy.stream, &captured, reply))
        return false;
    if (!copy.parts || copy.parts > MOST_BATCH_PARTS)
        return reply_no(reply, "a batch of %zu parts", copy.parts);
    if (captured && (!copy.dst || !copy.src))
        return reply_no(reply, "nothing can be allocated while a stream is captured");
    copy.dst_place = shapes[copy.kind].dst;
    copy.src_place = shapes[copy.kind].src;
    const struct copy_method *method = find_copy_method(copy.kind, args->text[3], reply);
    return method && do_copy(&copy, method, args->number[2], pinned, captured, reply);
}

/* ---- sets -------------------------------------------------------------- */

CALL_SITE static uint64_t make_sets(struct tally *tally, const struct set_method *method,
                                    const struct set *set, uint64_t count)
{
    uint64_t start_ns = now_ns();
    for (uint64_t i = 0; i < count; i++)
        if (tally_result(tally, method->call(set)))
            tally->sets++;
    return now_ns() - start_ns;
}

static bool do_set(struct set *set, const struct set_method *method, uint64_t count,
                   struct reply *reply)
{
    struct tally tally = { 0 };
    struct buffer buffer = { .place = DEVICE, .bytes = set->bytes ? set->bytes : 1 };
    uint64_t ns = 0;
    int error = buffer_take(&buffer, &tally);
    set->address = buffer.address;
    if (!error)
        ns = make_sets(&tally, method, set, count);
    buffer_release(&buffer, &tally);
    if (error) {
        truth_add(&tally);
        return reply_no(reply, "no memory for the set: CUDA error %d", error);
    }
    reply_add(reply, "calls=%lu bytes=%lu ns=%lu", tally.sets, (tally.sets * set->bytes), ns);
    return reply_done(reply, &tally);
}

static bool run_set(const struct args *args, struct reply *reply)
{
    struct set set = { .bytes = args->number[0] };
    if (!running_stream(args->text[3], &set.stream, reply))
        return false;
    const struct set_method *method = api.sets;
    while (args->text[2] && method->function && strcmp(method->function, args->text[2]))
        method++;
    if (!method->function || set.bytes % method->element_bytes)
        return reply_no(reply, "no set of %zu bytes via %s", set.bytes, args->text[2]);
    return do_set(&set, method, args->number[1], reply);
}

const struct command copy_commands[] = {
    { "copy <kind> SIZE [COUNT] [via=] [stream=] [pinned] [dst=ADDRESS] [src=ADDRESS] [parts=N]",
      NEEDS_API, run_copy },
    { "set SIZE [COUNT] [via=] [stream=]", NEEDS_API, run_set },
    { .usage = NULL },
};
