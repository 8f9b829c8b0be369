/*
 * Commands that make arrays, with and without mipmaps. They are kslots.
 *
 * What an array takes is computed here anew, and not asked for: no API tells.
 */
#include <string.h>

#include "workload.h"

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

const struct command array_commands[] = {
    { "array", "array WIDTH HEIGHT DEPTH CHANNELS BITS|FORMAT [FLAGS]", 5, 6, NEEDS_API,
      run_array },
    { "mipmap", "mipmap WIDTH HEIGHT DEPTH LEVELS CHANNELS BITS|FORMAT [FLAGS]", 6, 7, NEEDS_API,
      run_mipmap },
    { .name = NULL },
};
