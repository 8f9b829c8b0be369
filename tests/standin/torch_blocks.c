/*
 * The allocator's state as PyTorch keeps it in memory, for tracers that read it: tables of
 * allocated blocks, and for each device counters, a table of the blocks in use, and trees of those
 * that are not. It is written anew after each change, if STANDIN_TORCH_BLOCKS is set: to a number
 * from which the places of a block's fields are drawn. Behind these is the history of the block.
 */
#include "torch_blocks.h"

#include <stdlib.h>

struct table {
    uint64_t *entries;
    uint64_t slots_less_one;
    uint8_t shift, lookups;
    float load;
    uint64_t count;
};

struct node {
    uint64_t color;
    void *parent, *left, *right;
    uint64_t *block;
};

struct tree {
    void *compare;
    uint64_t color;
    void *root, *first, *last;
    uint64_t count;
};

struct pool {
    struct tree free, unmapped;
    bool is_small;
};

/* All, of small and of large segments. */
struct counter {
    uint64_t current, peak, added, taken;
};

struct native_device {
    uint64_t lock[5];
    struct counter allocated[3], reserved[3], requested[3];
    struct pool large, small;
    struct table in_use;
};

static struct native {
    void *lock;
    struct native_device **begin, **end, **room;
    struct table blocks[3];
} native;

#define EXPORT __attribute__((visibility("default")))
EXPORT struct native *standin_allocator __asm__("_ZN3c104cuda20CUDACachingAllocator9allocatorE");

enum field { POINTER, SIZE, REQUESTED, POOL, PREVIOUS, NEXT, STREAM, SEGMENT, FIELDS };
enum { BLOCK_WORDS = 32, CONTEXT = 30, LOOKUPS = 4 };
static unsigned place_of[FIELDS];

static struct native_device *native_devices[16];
/* What the last state was made of, and the one before: a reader may be at it. */
static struct garbage {
    void **all;
    size_t count;
} garbage[2];

static void *keep(size_t bytes)
{
    struct garbage *now = &garbage[1];
    now->all = realloc(now->all, (now->count + 1) * sizeof *now->all);
    return now->all[now->count++] = calloc(1, bytes);
}

static void begin_state(void)
{
    for (size_t i = 0; i < garbage[0].count; i++)
        free(garbage[0].all[i]);
    free(garbage[0].all);
    garbage[0] = garbage[1];
    garbage[1] = (struct garbage){ 0 };
}

static bool is_wanted(void)
{
    static int wanted = -1;
    const char *seed = getenv("STANDIN_TORCH_BLOCKS");
    if (wanted >= 0)
        return wanted;
    wanted = seed != NULL;
    if (!wanted)
        return false;
    unsigned places[CONTEXT], left = CONTEXT;
    uint64_t state = strtoull(seed, NULL, 10) * 2 + 1;
    for (unsigned i = 0; i < CONTEXT; i++)
        places[i] = i;
    for (unsigned i = 0; i < FIELDS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        /* Not the first two, which have the device and the stream. */
        unsigned drawn = 2 + (unsigned)((state >> 33) % (left - 2));
        place_of[i] = places[drawn];
        places[drawn] = places[--left];
    }
    place_of[STREAM] = 1;
    for (int i = 0; i < 16; i++)
        native_devices[i] = calloc(1, sizeof *native_devices[i]);
    native.begin = native_devices;
    native.end = native.room = native_devices + 16;
    standin_allocator = &native;
    return true;
}

/* ---- tables and trees ------------------------------------------------------ */

struct list {
    uint64_t (*entries)[2];
    size_t count;
};

static void add(struct list *list, uint64_t first, uint64_t second)
{
    if (list->count % 64 == 0)
        list->entries = realloc(list->entries, (list->count + 64) * sizeof *list->entries);
    list->entries[list->count][0] = first;
    list->entries[list->count++][1] = second;
}

static struct table table_of(const struct list *list, size_t words)
{
    size_t slots = 4;
    while (slots < 2 * list->count)
        slots *= 2;
    size_t all = slots + LOOKUPS;
    uint64_t *entries = keep(all * (words + 1) * sizeof *entries);
    for (size_t i = 0; i < all; i++) {
        uint64_t *entry = &entries[i * (words + 1)];
        bool is_used = i % 2 && i / 2 < list->count;
        entry[0] = is_used ? 0 : 0xff;
        for (size_t word = 0; is_used && word < words; word++)
            entry[1 + word] = list->entries[i / 2][word];
    }
    return (struct table){ entries, slots - 1, 60, LOOKUPS, 0.5f, list->count };
}

static void write_tree(struct tree *tree, const struct list *list)
{
    struct node *nodes = keep((list->count + 1) * sizeof *nodes);
    void *head = &tree->color;
    for (size_t i = 0; i < list->count; i++) {
        size_t left = 2 * i + 1, right = left + 1;
        nodes[i] = (struct node){ 1, i ? &nodes[(i - 1) / 2] : head,
                                  left < list->count ? &nodes[left] : NULL,
                                  right < list->count ? &nodes[right] : NULL,
                                  (uint64_t *)list->entries[i][0] };
    }
    *tree = (struct tree){ (void *)write_tree,         0,
                           list->count ? nodes : NULL, list->count ? &nodes[list->count - 1] : head,
                           list->count ? nodes : head, list->count };
}

/* ---- a device -------------------------------------------------------------- */

struct lists {
    struct list blocks, in_use, free[2], unmapped[2]; /* of large and of small segments */
    uint64_t allocated[2], reserved[2], requested[2];
};

static uint64_t *write_block(struct lists *lists, struct pool *pools, const struct range *range,
                             const struct block *live, uintptr_t address, size_t bytes,
                             bool is_mapped)
{
    uint64_t *block = keep(BLOCK_WORDS * sizeof *block);
    bool is_small = range->is_small;
    block[place_of[POINTER]] = address;
    block[place_of[SIZE]] = bytes;
    block[place_of[REQUESTED]] = live ? live->requested : 7;
    block[place_of[POOL]] = (uint64_t)&pools[is_small];
    block[place_of[STREAM]] = range->stream;
    lists->reserved[is_small] += is_mapped ? bytes : 0;
    if (!live) {
        add(is_mapped ? &lists->free[is_small] : &lists->unmapped[is_small], (uint64_t)block, 0);
        return block;
    }
    /* A pointer that is shared, and what counts who has it. */
    block[CONTEXT] = block[CONTEXT + 1] = (uint64_t)live->context;
    add(&lists->in_use, (uint64_t)block, 0);
    lists->requested[is_small] += live->requested;
    if (live->is_pending)
        return block;
    add(&lists->blocks, address, (uint64_t)block);
    lists->allocated[is_small] += bytes;
    return block;
}

static void write_range(struct lists *lists, struct pool *pools, const struct range *range)
{
    uintptr_t start = range->start.address, at = start, end = start + range->bytes;
    /* What an expandable segment is: a device, a stream, and where it begins. */
    uint64_t *segment = keep(4 * sizeof *segment);
    segment[1] = range->stream;
    segment[2] = start;
    const struct block *live = range->start.next;
    uint64_t *before = NULL;
    while (at < end) {
        bool is_live = live && live->address == at;
        size_t piece = (at - start) / range->piece_bytes;
        bool is_mapped = range->pieces[piece];
        uintptr_t next = is_live ? at + live->bytes : live ? live->address : end;
        if (!is_live) {
            uintptr_t edge = at;
            do
                edge = start + ++piece * range->piece_bytes;
            while (edge < next && (range->pieces[piece] != 0) == is_mapped);
            next = edge < next ? edge : next;
        }
        uint64_t *block = write_block(lists, pools, range, is_live ? live : NULL, at, next - at,
                                      is_live || is_mapped);
        block[place_of[PREVIOUS]] = (uint64_t)before;
        block[place_of[SEGMENT]] = range->piece_bytes < range->bytes ? (uint64_t)segment : 0;
        if (before)
            before[place_of[NEXT]] = (uint64_t)block;
        before = block;
        live = is_live ? live->next : live;
        at = next;
    }
}

/* `taken` grows with each change. */
static void count(struct counter *counters, const uint64_t *sums, uint64_t taken)
{
    uint64_t current[] = { sums[0] + sums[1], sums[1], sums[0] };
    for (int i = 0; i < 3; i++) {
        uint64_t peak = current[i] > counters[i].peak ? current[i] : counters[i].peak;
        counters[i] = (struct counter){ current[i], peak, current[i] + taken, taken };
    }
}

void standin_write_blocks(const struct device *devices, size_t device_count)
{
    static uint64_t changes;
    struct list blocks = { 0 };
    if (!is_wanted())
        return;
    begin_state();
    changes++;
    for (size_t i = 0; i < device_count; i++) {
        struct native_device *device = native_devices[i];
        struct lists lists = { 0 };
        /* The two pools lie one behind the other. */
        struct pool *pools = &device->large;
        for (const struct range *range = devices[i].ranges; range; range = range->next)
            write_range(&lists, pools, range);
        /* More than was ever allocated at once. */
        uint64_t taken = (changes << 40) + 512;
        count(device->allocated, lists.allocated, taken);
        count(device->reserved, lists.reserved, taken);
        count(device->requested, lists.requested, taken);
        for (int small = 0; small < 2; small++) {
            write_tree(&pools[small].free, &lists.free[small]);
            write_tree(&pools[small].unmapped, &lists.unmapped[small]);
            free(lists.free[small].entries);
            free(lists.unmapped[small].entries);
        }
        device->in_use = table_of(&lists.in_use, 1);
        for (size_t block = 0; block < lists.blocks.count; block++)
            add(&blocks, lists.blocks.entries[block][0], lists.blocks.entries[block][1]);
        free(lists.in_use.entries);
        free(lists.blocks.entries);
    }
    for (size_t part = 0; part < 3; part++) {
        struct list some = { 0 };
        for (size_t block = part; block < blocks.count; block += 3)
            add(&some, blocks.entries[block][0], blocks.entries[block][1]);
        native.blocks[part] = table_of(&some, 2);
        free(some.entries);
    }
    free(blocks.entries);
}
