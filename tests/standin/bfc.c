/*
 * The state of tsl::BFCAllocator, for tracers that read it: in the object a name, a vector of
 * chunks, the first of the vector's elements that are no chunks, and counters. All is written anew
 * after each change.
 */
#include "bfc.h"

#include <stdlib.h>
#include <string.h>

enum field { SIZE, REQUESTED, ID, POINTER, PREVIOUS, NEXT, FIELDS };
/* Words: of a chunk, and in the object. */
enum { WIDTH = 13, NAME = 125, VECTOR = 145, COUNTERS = 151, OBJECT = 512 };
enum { MAX_REGIONS = 8, MAX_CHUNKS = 1024 };
#define NONE UINT64_MAX

struct chunk {
    uintptr_t address;
    size_t bytes;
    uint64_t id;
};

static struct bfc {
    uint64_t object[OBJECT];
    uint64_t vector[2 * MAX_CHUNKS + MAX_REGIONS][WIDTH];
    const char *name;
    struct chunk regions[MAX_REGIONS];
    struct chunk chunks[MAX_CHUNKS]; /* by address */
    size_t region_count, chunk_count, element_count;
    uint64_t allocations, peak, largest;
} gpu = { .name = "GPU_0_bfc" },
  host = { .name = "xla_gpu_host_bfc", .regions = { { 4096, 1 << 30, 0 } }, .region_count = 1 };

static unsigned place_of[FIELDS];

static bool is_wanted(void)
{
    const char *seed = getenv("STANDIN_BFC");
    if (!seed)
        return false;
    unsigned places[WIDTH];
    uint64_t state = strtoull(seed, NULL, 10) * 2 + 1;
    for (unsigned i = 0; i < WIDTH; i++)
        places[i] = i;
    for (unsigned i = 0; i < FIELDS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned drawn = (unsigned)((state >> 33) % (WIDTH - i));
        place_of[i] = places[drawn];
        places[drawn] = places[WIDTH - 1 - i];
    }
    return true;
}

static bool has(const struct chunk *region, uintptr_t address)
{
    return address - region->address < region->bytes;
}

static uint64_t sum(const struct chunk *all, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += all[i].bytes;
    return bytes;
}

/* The chunks of a region, used and free; returns how many. */
static size_t list_chunks(const struct bfc *bfc, const struct chunk *region, struct chunk *chunks)
{
    uintptr_t at = region->address, end = at + region->bytes;
    size_t count = 0;
    for (size_t i = 0; i < bfc->chunk_count; i++) {
        const struct chunk *used = &bfc->chunks[i];
        if (!has(region, used->address))
            continue;
        if (at < used->address)
            chunks[count++] = (struct chunk){ at, used->address - at, NONE };
        chunks[count++] = *used;
        at = used->address + used->bytes;
    }
    if (at < end)
        chunks[count++] = (struct chunk){ at, end - at, NONE };
    return count;
}

static void write_state(struct bfc *bfc)
{
    static struct chunk chunks[MAX_REGIONS][2 * MAX_CHUNKS];
    size_t counts[MAX_REGIONS], count = 0;
    for (size_t i = 0; i < bfc->region_count; i++)
        count += counts[i] = list_chunks(bfc, &bfc->regions[i], chunks[i]);
    /* Elements are never taken away. The last ones are used first. */
    if (bfc->element_count < count)
        bfc->element_count = count;
    size_t element = bfc->element_count;
    for (size_t i = 0; i < bfc->region_count; i++)
        for (size_t j = 0; j < counts[i]; j++) {
            const struct chunk *chunk = &chunks[i][j];
            uint64_t *words = bfc->vector[--element];
            words[place_of[SIZE]] = chunk->bytes;
            words[place_of[REQUESTED]] = chunk->bytes - 1;
            words[place_of[ID]] = chunk->id;
            words[place_of[POINTER]] = chunk->address;
            words[place_of[PREVIOUS]] = j ? element + 1 : NONE;
            words[place_of[NEXT]] = j + 1 < counts[i] ? element - 1 : NONE;
        }
    uint64_t unused = NONE;
    while (element) {
        uint64_t *words = bfc->vector[--element];
        words[place_of[ID]] = NONE;
        words[place_of[NEXT]] = unused;
        unused = element;
    }
    uint64_t *name = &bfc->object[NAME], *vector = &bfc->object[VECTOR];
    size_t length = strlen(bfc->name);
    name[0] = (uint64_t)(length < 16 ? (const char *)&name[2] : bfc->name);
    name[1] = name[2] = length;
    if (length < 16)
        memcpy(&name[2], bfc->name, length + 1);
    vector[0] = (uint64_t)bfc->vector;
    vector[1] = vector[2] = (uint64_t)(bfc->vector + bfc->element_count);
    vector[3] = unused;
    uint64_t *counters = &bfc->object[COUNTERS];
    counters[0] = bfc->allocations;
    counters[1] = sum(bfc->chunks, bfc->chunk_count);
    counters[2] = bfc->peak;
    counters[3] = bfc->largest;
}

void bfc_add_region(uintptr_t start, size_t bytes)
{
    if (gpu.region_count < MAX_REGIONS)
        gpu.regions[gpu.region_count++] = (struct chunk){ start, bytes, 0 };
}

void *bfc_note(bool is_allocation, uintptr_t address, size_t bytes)
{
    struct bfc *bfc = &host;
    if (!is_wanted())
        return NULL;
    for (size_t i = 0; i < gpu.region_count; i++)
        if (has(&gpu.regions[i], address))
            bfc = &gpu;
    size_t at = 0;
    while (at < bfc->chunk_count && bfc->chunks[at].address < address)
        at++;
    struct chunk *chunk = &bfc->chunks[at];
    size_t behind = (bfc->chunk_count - at) * sizeof *chunk;
    if (is_allocation) {
        memmove(chunk + 1, chunk, behind);
        bfc->chunk_count++;
        *chunk = (struct chunk){ address, bytes, ++bfc->allocations };
    } else {
        bfc->chunk_count--;
        memmove(chunk, chunk + 1, behind - sizeof *chunk);
    }
    uint64_t in_use = sum(bfc->chunks, bfc->chunk_count);
    bfc->peak = in_use > bfc->peak ? in_use : bfc->peak;
    bfc->largest = bytes > bfc->largest ? bytes : bfc->largest;
    write_state(bfc);
    return bfc->object;
}

struct bfc_sums bfc_sums(void)
{
    return (struct bfc_sums){ sum(gpu.chunks, gpu.chunk_count), gpu.peak,
                              sum(gpu.regions, gpu.region_count) };
}
