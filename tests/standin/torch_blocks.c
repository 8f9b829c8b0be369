/* Stand-in libc10_cuda: blocks, the sets of free ones, and the table of allocated ones. */
#define _GNU_SOURCE
#include <search.h>
#include <stdlib.h>

#include "torch_internal.h"

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_keys(const struct block *block, uint64_t stream, size_t bytes, uintptr_t address)
{
    int order = compare_numbers(block->segment->stream, stream);
    if (!order)
        order = compare_numbers(block->bytes, bytes);
    return order ? order : compare_numbers(block->address, address);
}

static int compare_blocks(const void *a, const void *b)
{
    const struct block *other = b;
    return compare_keys(a, other->segment->stream, other->bytes, other->address);
}

static void *checked(void *memory)
{
    if (!memory) {
        fputs("stand-in PyTorch: no host memory\n", stderr);
        abort();
    }
    return memory;
}

void block_set_add(struct block_set *set, struct block *block)
{
    checked(tsearch(block, &set->root, compare_blocks));
}

void block_set_remove(struct block_set *set, struct block *block)
{
    tdelete(block, &set->root, compare_blocks);
}

struct search {
    uint64_t stream;
    size_t bytes;
    uintptr_t address;
    struct block *found;
};

/* Never reports equality, so that the search goes down to a leaf; the last block on its way that is
 * not before the key is the first such of all. */
static int compare_search(const void *key, const void *node)
{
    struct search *search = (struct search *)key;
    struct block *block = (struct block *)node;
    if (compare_keys(block, search->stream, search->bytes, search->address) < 0)
        return 1;
    search->found = block;
    return -1;
}

struct block *block_set_from(const struct block_set *set, uint64_t stream, size_t bytes,
                             uintptr_t address)
{
    struct search search = { stream, bytes, address, NULL };
    tfind(&search, &set->root, compare_search);
    return search.found && search.found->segment->stream == stream ? search.found : NULL;
}

struct block *block_split(struct block *block, size_t bytes)
{
    struct block *rest = checked(malloc(sizeof *rest));
    *rest = *block;
    rest->previous = block;
    rest->address += bytes;
    rest->bytes -= bytes;
    block->next = rest;
    block->bytes = bytes;
    if (rest->next)
        rest->next->previous = rest;
    return rest;
}

static bool is_alike(const struct block *a, const struct block *b)
{
    return a && b && !a->allocated && !b->allocated && a->mapped == b->mapped;
}

/* Merges the block after it into `block`. */
static void absorb_next(struct block *block)
{
    struct block *next = block->next;
    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next)
        block->next->previous = block;
    free(next);
}

struct block *block_join(struct block_set *set, struct block *block)
{
    if (is_alike(block, block->next)) {
        if (block->mapped)
            block_set_remove(set, block->next);
        absorb_next(block);
    }
    if (is_alike(block->previous, block)) {
        block = block->previous;
        if (block->mapped)
            block_set_remove(set, block);
        absorb_next(block);
    }
    return block;
}

static pthread_mutex_t active_lock = PTHREAD_MUTEX_INITIALIZER;
static void *active;

static int compare_addresses(const void *a, const void *b)
{
    return compare_numbers(((const struct block *)a)->address, ((const struct block *)b)->address);
}

void active_add(struct block *block)
{
    pthread_mutex_lock(&active_lock);
    checked(tsearch(block, &active, compare_addresses));
    pthread_mutex_unlock(&active_lock);
}

struct block *active_take(uintptr_t address)
{
    struct block key = { .address = address }, *block = NULL;
    pthread_mutex_lock(&active_lock);
    struct block **node = tfind(&key, &active, compare_addresses);
    if (node) {
        block = *node;
        tdelete(block, &active, compare_addresses);
    }
    pthread_mutex_unlock(&active_lock);
    return block;
}
