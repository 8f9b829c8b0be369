/* Commands that allocate and free memory other than `alloc`'s, arrays too: each block, its kind and
 * its free function are a kslot. */
#include <stdlib.h>
#include <string.h>

#include "workload.h"

#define PAGE_BYTES 4096

static void *pointer(const struct kslot *slot)
{
    return (void *)slot->handle;
}

static int release_device(struct kslot *slot)
{
    return api.release(pointer(slot));
}

static int release_pinned(struct kslot *slot)
{
    return api.kinds->pinned_free(pointer(slot));
}

/* The memory itself is given back only after a successful call: until then the
 * driver knows of it. */
static int release_registered(struct kslot *slot)
{
    int error = api.kinds->host_unregister(pointer(slot));
    if (!error)
        free(pointer(slot));
    return error;
}

static void reply_calls(struct reply *reply, const struct tally *tally)
{
    if (tally->failed)
        reply_add(reply, "%serror=%d failed=%lu", reply->length ? " " : "", tally->last_error,
                  tally->failed);
}

/* One allocation of `bytes`; `slot` has its kind and its release. */
typedef int allocate(struct kslot *slot);

CALL_SITE static bool allocate_many(allocate *make, struct kslot slot, uint64_t count,
                                    struct reply *reply)
{
    struct tally tally = { 0 };
    uint64_t shown = 0;
    for (uint64_t i = 0; i < count; i++) {
        slot.handle = 0;
        if (!tally_result(&tally, make(&slot)))
            continue;
        reply_handle(reply, shown++, slot.handle);
        if (slot.handle) /* the runtime gives NULL for no rows: nothing is live */
            kslot_add(&tally, slot);
    }
    truth_add(&tally);
    reply_calls(reply, &tally);
    return true;
}

/* `slot.more` are the sides: width, height, depth. */
static int make_pitched(struct kslot *slot)
{
    size_t pitch = 0;
    void *address = NULL;
    int error = api.kinds->pitched(&address, &pitch, slot->more[0], slot->more[1]);
    slot->handle = (uintptr_t)address;
    slot->bytes = pitch * slot->more[1];
    return error;
}

static int make_pitched_3d(struct kslot *slot)
{
    size_t pitch = 0;
    void *address = NULL;
    int error =
        api.kinds->pitched_3d(&address, &pitch, slot->more[0], slot->more[1], slot->more[2]);
    slot->handle = (uintptr_t)address;
    slot->bytes = pitch * slot->more[1] * slot->more[2];
    return error;
}

static int make_managed(struct kslot *slot)
{
    return api.kinds->managed((void **)&slot->handle, slot->bytes, CU_MEM_ATTACH_GLOBAL);
}

static int make_pinned(struct kslot *slot)
{
    return api.kinds->pinned((void **)&slot->handle, slot->bytes);
}

static int make_host_alloc(struct kslot *slot)
{
    return api.kinds->host_alloc((void **)&slot->handle, slot->bytes, 0);
}

static int make_registered(struct kslot *slot)
{
    void *address;
    if (posix_memalign(&address, PAGE_BYTES, slot->bytes ? slot->bytes : 1))
        return -1;
    int error = api.kinds->host_register(address, slot->bytes, 0);
    if (error)
        free(address);
    else
        slot->handle = (uintptr_t)address;
    return error;
}

static bool run_pitched(struct words *words, struct reply *reply)
{
    struct kslot slot = { .kind = KIND_PITCHED, .release = release_device };
    uint64_t count = 1;
    return parse_u64(words->word[1], SIZE_MAX, &slot.more[0], reply) &&
           parse_u64(words->word[2], SIZE_MAX, &slot.more[1], reply) &&
           (words->count < 4 || parse_u64(words->word[3], UINT32_MAX, &count, reply)) &&
           allocate_many(make_pitched, slot, count, reply);
}

static bool run_pitched_3d(struct words *words, struct reply *reply)
{
    struct kslot slot = { .kind = KIND_PITCHED, .release = release_device };
    for (int i = 0; i < 3; i++)
        if (!parse_u64(words->word[i + 1], SIZE_MAX, &slot.more[i], reply))
            return false;
    return allocate_many(make_pitched_3d, slot, 1, reply);
}

/* Commands of the form NAME BYTES [COUNT]. */
static bool run_sized(struct words *words, struct reply *reply)
{
    static const struct {
        const char *name;
        enum memory_kind kind;
        allocate *make;
        int (*release)(struct kslot *slot);
    } rows[] = {
        { "managed", KIND_MANAGED, make_managed, release_device },
        { "pinned", KIND_PINNED, make_pinned, release_pinned },
        { "hostalloc", KIND_PINNED, make_host_alloc, release_pinned },
        { "register", KIND_REGISTERED, make_registered, release_registered },
    };
    uint64_t bytes, count = 1;
    if (!parse_u64(words->word[1], SIZE_MAX, &bytes, reply) ||
        !parse_optional(words, 2, UINT32_MAX, &count, reply))
        return false;
    size_t row = 0;
    while (strcmp(rows[row].name, words->word[0]))
        row++;
    struct kslot slot = { .kind = rows[row].kind, .bytes = bytes, .release = rows[row].release };
    return allocate_many(rows[row].make, slot, count, reply);
}

CALL_SITE static bool run_kfree(struct words *words, struct reply *reply)
{
    uint64_t first, count = 1, dead = 0;
    if (!parse_u64(words->word[1], SIZE_MAX, &first, reply) ||
        !parse_optional(words, 2, SIZE_MAX, &count, reply))
        return false;
    if (first >= kslot_count() || count > kslot_count() - first) {
        reply_add(reply, "there are %zu kslots", kslot_count());
        return false;
    }
    struct tally tally = { 0 };
    for (size_t i = first; i < first + count; i++) {
        struct kslot *slot = kslot_at(i);
        if (!slot->live || !slot->release)
            dead++;
        else
            kslot_release(&tally, slot);
    }
    return reply_frees(reply, &tally, dead);
}

CALL_SITE static bool run_kfreeall(struct words *words, struct reply *reply)
{
    (void)words;
    struct tally tally = { 0 };
    for (size_t i = 0; i < kslot_count(); i++)
        if (kslot_at(i)->live && kslot_at(i)->release)
            kslot_release(&tally, kslot_at(i));
    return reply_frees(reply, &tally, 0);
}

/* The runtime takes NULL for nothing to do, the driver for an error. */
static bool run_kfreenull(struct words *words, struct reply *reply)
{
    struct tally tally = { 0 };
    int error;
    if (!strcmp(words->word[1], "pinned"))
        error = api.kinds->pinned_free(NULL);
    else if (!strcmp(words->word[1], "array"))
        error = api.kinds->array_free(NULL);
    else if (!strcmp(words->word[1], "mipmap"))
        error = api.kinds->mipmap_free(NULL);
    else {
        reply_add(reply, "%s: expected pinned, array or mipmap", words->word[1]);
        return false;
    }
    if (tally_result(&tally, error))
        tally.nullfrees++;
    return reply_frees(reply, &tally, 0);
}

static bool run_kslots(struct words *words, struct reply *reply)
{
    (void)words;
    for (size_t i = 0; i < kslot_count(); i++) {
        const struct kslot *slot = kslot_at(i);
        reply_add(reply, "%s%zu=%s:0x%lx:%zu%s", i ? " " : "", i, memory_kinds[slot->kind].name,
                  slot->handle, slot->bytes, slot->live ? "" : ":dead");
    }
    return true;
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

static int release_array(struct kslot *slot)
{
    return api.kinds->array_free((void *)slot->handle);
}

static int release_mipmap(struct kslot *slot)
{
    return api.kinds->mipmap_free((void *)slot->handle);
}

/* CHANNELS FORMAT [FLAGS], from word `first` on. */
static bool parse_elements(const struct words *words, int first, struct array_shape *shape,
                           struct format *format, struct reply *reply)
{
    uint64_t channels, bits, flags = 0;
    const char *name = words->word[first + 1];
    const struct format *named = format_named(name);
    if (!parse_u64(words->word[first], 4, &channels, reply) ||
        (!named && !parse_u64(name, 32, &bits, reply)) ||
        (words->count > first + 2 && !parse_u64(words->word[first + 2], UINT32_MAX, &flags, reply)))
        return false;
    shape->channels = (unsigned int)channels;
    shape->flags = (unsigned int)flags;
    shape->bits = named ? 0 : (unsigned int)bits;
    shape->format = named ? named->format : 0;
    *format = named ? *named : (struct format){ name, 0, (unsigned int)bits / 8, 1, true };
    return true;
}

CALL_SITE static bool make_array(const struct array_shape *shape, const struct format *format,
                                 bool mipmap, struct reply *reply)
{
    struct tally tally = { 0 };
    void *array = NULL;
    struct kslot slot = { .kind = KIND_ARRAY,
                          .bytes = bytes_of(shape, format),
                          .release = mipmap ? release_mipmap : release_array };
    int error = mipmap ? api.kinds->mipmap(&array, shape) : api.kinds->array(&array, shape);
    if (tally_result(&tally, error)) {
        slot.handle = (uintptr_t)array;
        kslot_add(&tally, slot);
        reply_add(reply, "0x%lx bytes=%zu", slot.handle, slot.bytes);
    } else {
        reply_add(reply, "error=%d failed=1", error);
    }
    truth_add(&tally);
    return true;
}

static bool parse_sides(const struct words *words, struct array_shape *shape, struct reply *reply)
{
    return parse_u64(words->word[1], SIZE_MAX, &shape->width, reply) &&
           parse_u64(words->word[2], SIZE_MAX, &shape->height, reply) &&
           parse_u64(words->word[3], SIZE_MAX, &shape->depth, reply);
}

static bool run_array(struct words *words, struct reply *reply)
{
    struct array_shape shape = { .levels = 1 };
    struct format format;
    return parse_sides(words, &shape, reply) && parse_elements(words, 4, &shape, &format, reply) &&
           make_array(&shape, &format, false, reply);
}

static bool run_mipmap(struct words *words, struct reply *reply)
{
    struct array_shape shape;
    struct format format;
    uint64_t levels;
    if (!parse_sides(words, &shape, reply) || !parse_u64(words->word[4], 32, &levels, reply))
        return false;
    shape.levels = (unsigned int)levels;
    return parse_elements(words, 5, &shape, &format, reply) &&
           make_array(&shape, &format, true, reply);
}

const struct command allocate_commands[] = {
    { "pitched", "pitched WIDTH HEIGHT [COUNT]", 2, 3, NEEDS_API, run_pitched },
    { "pitched3d", "pitched3d WIDTH HEIGHT DEPTH", 3, 3, NEEDS_API, run_pitched_3d },
    { "managed", "managed BYTES [COUNT]", 1, 2, NEEDS_API, run_sized },
    { "pinned", "pinned BYTES [COUNT]", 1, 2, NEEDS_API, run_sized },
    { "hostalloc", "hostalloc BYTES [COUNT]", 1, 2, NEEDS_API, run_sized },
    { "register", "register BYTES [COUNT]", 1, 2, NEEDS_API, run_sized },
    { "kfree", "kfree FIRST [COUNT]", 1, 2, NEEDS_API, run_kfree },
    { "kfreeall", "kfreeall", 0, 0, NEEDS_API, run_kfreeall },
    { "kfreenull", "kfreenull pinned|array|mipmap", 1, 1, NEEDS_API, run_kfreenull },
    { "kslots", "kslots", 0, 0, 0, run_kslots },
    { "array", "array WIDTH HEIGHT DEPTH CHANNELS BITS|FORMAT [FLAGS]", 5, 6, NEEDS_API,
      run_array },
    { "mipmap", "mipmap WIDTH HEIGHT DEPTH LEVELS CHANNELS BITS|FORMAT [FLAGS]", 6, 7, NEEDS_API,
      run_mipmap },
    { .name = NULL },
};
