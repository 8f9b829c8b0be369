/* Free addresses are a list in the order of their release, so that the next
 * request of the same size gets the address that was released last. */
#include "cuda_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Below the block table's addresses. */
#define FIRST_ADDRESS 0x700000000000ull
#define END_ADDRESS 0x7c0000000000ull

struct gap {
    struct gap *next;
    uint64_t address, bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gap *gaps; /* under `lock` */

static struct gap *gap_new(uint64_t address, uint64_t bytes, struct gap *next)
{
    struct gap *gap = malloc(sizeof *gap);
    if (!gap) {
        fputs("stand-in CUDA: no host memory for address space\n", stderr);
        abort();
    }
    *gap = (struct gap){ next, address, bytes };
    return gap;
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + SPACE_STEP - 1) & ~(SPACE_STEP - 1);
}

/* Cuts `bytes` at `address` out of the gap. */
static void cut(struct gap **link, uint64_t address, uint64_t bytes)
{
    struct gap *gap = *link;
    uint64_t before = address - gap->address;
    uint64_t after = gap->bytes - before - bytes;
    if (after)
        gap->next = gap_new(address + bytes, after, gap->next);
    gap->bytes = before;
    if (!before) {
        *link = gap->next;
        free(gap);
    }
}

static struct gap **find_at(uint64_t address, uint64_t bytes)
{
    for (struct gap **link = &gaps; *link; link = &(*link)->next)
        if (address >= (*link)->address && address - (*link)->address < (*link)->bytes &&
            bytes <= (*link)->bytes - (address - (*link)->address))
            return link;
    return NULL;
}

static struct gap **find_any(uint64_t bytes)
{
    for (struct gap **link = &gaps; *link; link = &(*link)->next)
        if ((*link)->bytes >= bytes)
            return link;
    return NULL;
}

uint64_t space_take(uint64_t bytes, uint64_t hint)
{
    static bool begun; /* under `lock` */
    if (bytes > END_ADDRESS - FIRST_ADDRESS)
        return 0;
    bytes = rounded(bytes);
    pthread_mutex_lock(&lock);
    if (!begun) {
        begun = true;
        gaps = gap_new(FIRST_ADDRESS, END_ADDRESS - FIRST_ADDRESS, NULL);
    }
    uint64_t address = hint % SPACE_STEP ? 0 : hint;
    struct gap **link = address ? find_at(address, bytes) : NULL;
    if (!link) {
        link = find_any(bytes);
        address = link ? (*link)->address : 0;
    }
    if (link)
        cut(link, address, bytes);
    pthread_mutex_unlock(&lock);
    return address;
}

void space_release(uint64_t address, uint64_t bytes)
{
    bytes = rounded(bytes);
    pthread_mutex_lock(&lock);
    /* Joined with its neighbours, and put first. */
    for (struct gap **link = &gaps; *link;) {
        struct gap *gap = *link;
        bool below = gap->address + gap->bytes == address;
        if (!below && address + bytes != gap->address) {
            link = &gap->next;
            continue;
        }
        address = below ? gap->address : address;
        bytes += gap->bytes;
        *link = gap->next;
        free(gap);
    }
    gaps = gap_new(address, bytes, gaps);
    pthread_mutex_unlock(&lock);
}
