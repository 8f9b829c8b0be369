/* Commands that allocate memory of other kinds than `alloc`'s, arrays too. */
#include <stdlib.h>
#include <string.h>

#include "workload.h"

#define PAGE_BYTES 4096

static int release_device(struct slot *slot)
{
    return api.release((void *)slot->handle);
}

static int release_pinned(struct slot *slot)
{
    return api.pinned_free((void *)slot->handle);
}

/* The memory itself is given back only after a successful call: until then the
 * driver knows of it. */
static int release_registered(struct slot *slot)
{
    int error = api.host_unregister((void *)slot->handle);
    if (!error)
        free((void *)slot->handle);
    return error;
}

/* One allocation: `slot` has its bytes, or its sides in `more`: width, height, depth. */
static int make_pitched(struct slot *slot)
{
    size_t pitch = 0;
    int error = api.pitched((void **)&slot->handle, &pitch, slot->more[0], slot->more[1]);
    slot->bytes = pitch * slot->more[1];
    return error;
}

static int make_pitched_3d(struct slot *slot)
{
    size_t pitch = 0;
    int error =
        api.pitched_3d((void **)&slot->handle, &pitch, slot->more[0], slot->more[1], slot->more[2]);
    slot->bytes = pitch * slot->more[1] * slot->more[2];
    return error;
}

static int make_managed(struct slot *slot)
{
    return api.managed((void **)&slot->handle, slot->bytes, CU_MEM_ATTACH_GLOBAL);
}

static int make_pinned(struct slot *slot)
{
    return api.pinned((void **)&slot->handle, slot->bytes);
}

static int make_host_alloc(struct slot *slot)
{
    return api.host_alloc((void **)&slot->handle, slot->bytes, 0);
}

static int make_registered(struct slot *slot)
{
    void *address;
    if (posix_memalign(&address, PAGE_BYTES, slot->bytes ? slot->bytes : 1))
        return -1;
    int error = api.host_register(address, slot->bytes, 0);
    if (error)
        free(address);
    else
        slot->handle = (uintptr_t)address;
    return error;
}

/* By their commands: NAME SIZE [COUNT], or the sides instead of the size. */
static const struct way {
    const char *command;
    enum memory_kind kind;
    int (*make)(struct slot *slot);
    int (*release)(struct slot *slot);
    int sides;
} ways[] = {
    { "managed ", KIND_MANAGED, make_managed, release_device, 0 },
    { "pinned ", KIND_PINNED, make_pinned, release_pinned, 0 },
    { "hostalloc ", KIND_PINNED, make_host_alloc, release_pinned, 0 },
    { "register ", KIND_REGISTERED, make_registered, release_registered, 0 },
    { "pitched ", KIND_PITCHED, make_pitched, release_device, 2 },
    { "pitched3d ", KIND_PITCHED, make_pitched_3d, release_device, 3 },
};

CALL_SITE static bool allocate_many(const struct way *way, struct slot slot, uint64_t count,
                                    struct reply *reply)
{
    struct tally tally = { 0 };
    uint64_t shown = 0;
    for (uint64_t i = 0; i < count; i++) {
        slot.handle = 0;
        if (!tally_result(&tally, way->make(&slot)))
            continue;
        reply_handle(reply, shown++, slot.handle);
        if (slot.handle) /* the runtime gives NULL for no rows: nothing is live */
            slot_add(&tally, slot);
    }
    return reply_done(reply, &tally);
}

static bool run_allocate(const struct args *args, struct reply *reply)
{
    const struct way *way = ways;
    while (strncmp(way->command, args->command->usage, strlen(way->command)))
        way++;
    struct slot slot = { .kind = way->kind, .bytes = args->number[0], .release = way->release };
    for (int i = 0; i < way->sides; i++)
        slot.more[i] = args->number[i];
    return allocate_many(way, slot, args->number[way->sides ? way->sides : 1], reply);
}

/* ---- arrays: their bytes are computed here anew, since no API reports them --- */

#define LAYERED_FLAGS (1u | 4u)           /* layered, cubemap */
#define WITHOUT_MEMORY_FLAGS (64u | 128u) /* sparse, deferred mapping */

/* Formats beyond integers of 8, 16 and 32 bits, by their numbers in CUDA. */
static const struct format {
    const char *name;
    unsigned int format;
    unsigned int bytes;  /* of an element, or of a square of 4 by 4 */
    unsigned int square; /* the side of what `bytes` are of */
    bool per_channel;
} formats[] = {
    { "half", 0x10, 2, 1, true },      { "float", 0x20, 4, 1, true },
    { "int8", 0x08, 1, 1, true },      { "int32", 0x0a, 4, 1, true },
    { "bc1", 0x91, 8, 4, false },      { "bc2", 0x93, 16, 4, false },
    { "bc4", 0x97, 8, 4, false },      { "bc5", 0x99, 16, 4, false },
    { "bc7", 0x9d, 16, 4, false },     { "unorm8", 0xc0, 1, 1, true },
    { "unorm8x4", 0xc2, 1, 1, true },  { "unorm16x2", 0xc4, 2, 1, true },
    { "snorm16x4", 0xcb, 2, 1, true }, { "unorm101010", 0x50, 4, 1, false },
};

static const struct format *format_named(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i].name, name))
            return &formats[i];
    return NULL;
}

static uint64_t side_of(size_t side, unsigned int level, unsigned int square)
{
    size_t halved = side >> level;
    return ((halved ? halved : 1) + square - 1) / square;
}

static size_t bytes_of(const struct array_shape *shape, const struct format *format)
{
    if (shape->flags & WITHOUT_MEMORY_FLAGS)
        return 0;
    size_t bytes = 0;
    unsigned int each = format->bytes * (format->per_channel ? shape->channels : 1);
    for (unsigned int level = 0; level < shape->levels; level++)
        bytes += side_of(shape->width, level, format->square) *
                 side_of(shape->height, level, format->square) *
                 side_of(shape->depth, shape->flags & LAYERED_FLAGS ? 0 : level, 1) * each;
    return bytes;
}

static int release_array(struct slot *slot)
{
    return api.array_free((void *)slot->handle);
}

static int release_mipmap(struct slot *slot)
{
    return api.mipmap_free((void *)slot->handle);
}

/* CHANNELS, BITS or a format's name, FLAGS: the arguments from number `first` on. */
static bool make_array(const struct args *args, int first, unsigned int levels, struct reply *reply)
{
    const struct format *named = format_named(args->text[first + 1]);
    uint64_t bits = 0;
    if (!named && !parse_u64(args->text[first + 1], &bits, reply))
        return false;
    struct format format =
        named ? *named : (struct format){ "", 0, (unsigned int)bits / 8, 1, true };
    struct array_shape shape = {
        .width = args->number[0],
        .height = args->number[1],
        .depth = args->number[2],
        .levels = levels ? levels : 1,
        .channels = (unsigned int)args->number[first],
        .bits = (unsigned int)bits,
        .format = format.format,
        .flags = (unsigned int)args->number[first + 2],
    };
    void *array = NULL;
    struct tally tally = { 0 };
    struct slot slot = { .kind = KIND_ARRAY,
                         .bytes = bytes_of(&shape, &format),
                         .release = levels ? release_mipmap : release_array };
    int error = levels ? api.mipmap(&array, &shape) : api.array(&array, &shape);
    if (tally_result(&tally, error)) {
        slot.handle = (uintptr_t)array;
        slot_add(&tally, slot);
        reply_add(reply, "0x%lx bytes=%zu", slot.handle, slot.bytes);
    }
    return reply_done(reply, &tally);
}

CALL_SITE static bool run_array(const struct args *args, struct reply *reply)
{
    return make_array(args, 3, 0, reply);
}

CALL_SITE static bool run_mipmap(const struct args *args, struct reply *reply)
{
    return make_array(args, 4, (unsigned int)args->number[3], reply);
}

const struct command kind_commands[] = {
    { "pitched WIDTH HEIGHT [COUNT]", NEEDS_API, run_allocate },
    { "pitched3d WIDTH HEIGHT DEPTH [COUNT]", NEEDS_API, run_allocate },
    { "managed SIZE [COUNT]", NEEDS_API, run_allocate },
    { "pinned SIZE [COUNT]", NEEDS_API, run_allocate },
    { "hostalloc SIZE [COUNT]", NEEDS_API, run_allocate },
    { "register SIZE [COUNT]", NEEDS_API, run_allocate },
    { "array WIDTH HEIGHT DEPTH CHANNELS <bits|format> [FLAGS]", NEEDS_API, run_array },
    { "mipmap WIDTH HEIGHT DEPTH LEVELS CHANNELS <bits|format> [FLAGS]", NEEDS_API, run_mipmap },
    { .usage = NULL },
};
