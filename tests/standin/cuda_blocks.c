/*
 * The block table. An address that was handed out once keeps its record for
 * ever: releasing it puts the record on the free list of its size class, and
 * the next block of that class, on any thread and any device, is that address.
 * So the index from address to record only ever grows, and both taking and
 * releasing a block cost O(1).
 *
 * The immediate reuse is the point: a tracer that learns of a free only when
 * the call returns sees the same address allocated by another thread first.
 */
#define _GNU_SOURCE /* the adaptive mutex: it is held for nanoseconds */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_internal.h"

/* The address range of a real driver. */
#define FIRST_ADDRESS 0x7d3320000000ull
#define END_ADDRESS 0x7fff00000000ull

/* Up to 2 MiB a class is a multiple of 512 bytes; above, a power of two, which
 * keeps the address space from running out under ever changing sizes. */
#define SMALL_STEP 512ull
#define LARGE_SHIFT 21
#define LARGE_STEP (1ull << LARGE_SHIFT)
#define SMALL_CLASSES (LARGE_STEP / SMALL_STEP)
#define FIRST_CAPACITY_LOG2 10
#define CLASSES (SMALL_CLASSES + 64 - LARGE_SHIFT + 1)

struct block {
    uint64_t address;
    uint64_t bytes;
    const void *owner;  /* NULL: free */
    uint32_t next_free; /* record number + 1; 0 ends the list */
    uint16_t class;
    uint8_t device;
    bool inner;
};

_Static_assert(CLASSES <= UINT16_MAX, "a class must fit its field");
_Static_assert(sizeof(struct block) == 32, "two records to a cache line");

static struct {
    pthread_mutex_t lock;
    uint64_t device_bytes;
    uint64_t used[MAX_DEVICES];
    uint64_t next_address;
    struct block *blocks;
    uint32_t count, capacity;
    uint32_t *index;          /* open addressing; record number + 1, 0: empty */
    unsigned int index_shift; /* the index has 2^(64 - index_shift) places */
    uint32_t first_free[CLASSES];
} table = {
    .lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
    .next_address = FIRST_ADDRESS,
    .index_shift = 64 - FIRST_CAPACITY_LOG2,
};

static void die(const char *what)
{
    fprintf(stderr, "stand-in CUDA: block table: %s\n", what);
    abort();
}

static unsigned int class_of(uint64_t bytes)
{
    if (bytes <= LARGE_STEP)
        return (unsigned int)((bytes + SMALL_STEP - 1) / SMALL_STEP);
    unsigned int log2 = 64 - (unsigned int)__builtin_clzll(bytes - 1);
    return SMALL_CLASSES + log2 - LARGE_SHIFT;
}

/* Address space that a block of the class takes; 0 where it exceeds 64 bits. */
static uint64_t stride_of(unsigned int class)
{
    if (class <= SMALL_CLASSES)
        return class * SMALL_STEP;
    unsigned int log2 = class - SMALL_CLASSES + LARGE_SHIFT;
    return log2 < 64 ? 1ull << log2 : 0;
}

/* The index place that holds `address`, or the empty one where it belongs. */
static uint32_t *find(uint64_t address)
{
    uint64_t mask = (1ull << (64 - table.index_shift)) - 1;
    uint64_t place = (address / SMALL_STEP * 0x9e3779b97f4a7c15ull) >> table.index_shift;
    while (table.index[place] && table.blocks[table.index[place] - 1].address != address)
        place = (place + 1) & mask;
    return &table.index[place];
}

static void grow(void)
{
    table.capacity = table.capacity ? 2 * table.capacity : 1u << FIRST_CAPACITY_LOG2;
    table.blocks = realloc(table.blocks, table.capacity * sizeof *table.blocks);
    free(table.index);
    table.index_shift--; /* two places a record, so that probes stay short */
    table.index = calloc(1ull << (64 - table.index_shift), sizeof *table.index);
    if (!table.blocks || !table.index)
        die("no host memory");
    for (uint32_t i = 0; i < table.count; i++)
        *find(table.blocks[i].address) = i + 1;
}

/* A record for an address never handed out before; NULL when the address
 * space has no room for it. */
static struct block *new_block(unsigned int class)
{
    uint64_t align = class < SMALL_CLASSES ? SMALL_STEP : LARGE_STEP;
    uint64_t address = (table.next_address + align - 1) & ~(align - 1);
    uint64_t stride = stride_of(class);
    if (!stride || address >= END_ADDRESS || stride > END_ADDRESS - address)
        return NULL;
    if (table.count == table.capacity)
        grow();
    uint32_t *place = find(address);
    if (*place)
        die("a new address is already known");
    table.next_address = address + stride;
    *place = table.count + 1;
    struct block *block = &table.blocks[table.count++];
    *block = (struct block){ .address = address, .class = (uint16_t) class };
    return block;
}

static struct block *reuse_block(unsigned int class)
{
    uint32_t number = table.first_free[class];
    if (!number)
        return NULL;
    struct block *block = &table.blocks[number - 1];
    if (block->owner)
        die("an address would be live twice");
    table.first_free[class] = block->next_free;
    return block;
}

static void release(struct block *block)
{
    table.used[block->device] -= block->bytes;
    block->owner = NULL;
    block->next_free = table.first_free[block->class];
    table.first_free[block->class] = (uint32_t)(block - table.blocks) + 1;
}

void blocks_setup(uint64_t device_bytes)
{
    pthread_mutex_lock(&table.lock);
    table.device_bytes = device_bytes;
    grow();
    pthread_mutex_unlock(&table.lock);
}

static bool take(const void *owner, int device, uint64_t bytes, bool inner, uint64_t *address)
{
    struct block *block = NULL;
    unsigned int class = class_of(bytes);
    pthread_mutex_lock(&table.lock);
    if (bytes <= table.device_bytes - table.used[device]) {
        block = reuse_block(class);
        if (!block)
            block = new_block(class);
    }
    if (block) {
        block->owner = owner;
        block->device = (uint8_t)device;
        block->inner = inner;
        block->bytes = bytes;
        table.used[device] += bytes;
        *address = block->address;
    }
    pthread_mutex_unlock(&table.lock);
    return block != NULL;
}

bool blocks_take(const void *owner, int device, uint64_t bytes, uint64_t *address)
{
    return take(owner, device, bytes, false, address);
}

bool blocks_take_inner(const void *owner, int device, uint64_t bytes, uint64_t *address)
{
    return take(owner, device, bytes, true, address);
}

static bool release_at(uint64_t address, bool inner, const void **owner, uint64_t *bytes)
{
    bool live = false;
    pthread_mutex_lock(&table.lock);
    uint32_t number = *find(address);
    if (number && table.blocks[number - 1].owner && table.blocks[number - 1].inner == inner) {
        *owner = table.blocks[number - 1].owner;
        *bytes = table.blocks[number - 1].bytes;
        release(&table.blocks[number - 1]);
        live = true;
    }
    pthread_mutex_unlock(&table.lock);
    return live;
}

bool blocks_release(uint64_t address)
{
    const void *owner;
    uint64_t bytes;
    return release_at(address, false, &owner, &bytes);
}

bool blocks_release_from(uint64_t address, const void **owner, uint64_t *bytes)
{
    return release_at(address, false, owner, bytes);
}

bool blocks_release_inner(uint64_t address)
{
    const void *owner;
    uint64_t bytes;
    return release_at(address, true, &owner, &bytes);
}

/* Addresses are never handed out twice for the first time, and each new one is
 * above the last: the records lie in the order of their addresses. */
static const struct block *block_at_or_below(uint64_t address)
{
    uint32_t low = 0, high = table.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (table.blocks[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &table.blocks[low - 1] : NULL;
}

enum block_state blocks_state(uint64_t address, uint64_t bytes)
{
    enum block_state state = BLOCK_NONE;
    pthread_mutex_lock(&table.lock);
    const struct block *block = block_at_or_below(address);
    if (block && address < block->address + stride_of(block->class)) {
        uint64_t offset = address - block->address;
        bool inside = block->owner && offset < block->bytes && bytes <= block->bytes - offset;
        state = inside ? BLOCK_LIVE : BLOCK_DEAD;
    }
    pthread_mutex_unlock(&table.lock);
    return state;
}

bool blocks_find(uint64_t address, struct block_range *range)
{
    pthread_mutex_lock(&table.lock);
    const struct block *block = block_at_or_below(address);
    bool found = block && block->owner && address - block->address < block->bytes;
    if (found)
        *range = (struct block_range){ block->address, block->bytes, block->owner, block->device };
    pthread_mutex_unlock(&table.lock);
    return found;
}

bool blocks_charge(int device, uint64_t bytes)
{
    pthread_mutex_lock(&table.lock);
    bool left = bytes <= table.device_bytes - table.used[device];
    if (left)
        table.used[device] += bytes;
    pthread_mutex_unlock(&table.lock);
    return left;
}

void blocks_uncharge(int device, uint64_t bytes)
{
    pthread_mutex_lock(&table.lock);
    table.used[device] -= bytes;
    pthread_mutex_unlock(&table.lock);
}

void blocks_release_owned(const void *owner)
{
    pthread_mutex_lock(&table.lock);
    for (uint32_t i = 0; i < table.count; i++)
        if (table.blocks[i].owner == owner)
            release(&table.blocks[i]);
    pthread_mutex_unlock(&table.lock);
}

uint64_t blocks_left(int device)
{
    pthread_mutex_lock(&table.lock);
    uint64_t left = table.device_bytes - table.used[device];
    pthread_mutex_unlock(&table.lock);
    return left;
}
