/* Address space is reserved for all objects of a kind at once, so that whether
 * a pointer is a handle is a matter of comparing it, without a lock. */
#define _GNU_SOURCE
#include "cuda_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct slot {
    _Alignas(HANDLE_BYTES) struct handle handle;
};

_Static_assert(sizeof(struct slot) == HANDLE_BYTES, "a slot is as large as the largest object");

static struct {
    _Atomic(struct slot *) slots; /* NULL until the kind's first */
    _Atomic(uint32_t) count;      /* ever handed out */
    uint32_t first_free;          /* under `lock` */
} pools[HANDLE_KINDS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct slot *reserve(void)
{
    void *space = mmap(NULL, MAX_HANDLES * sizeof(struct slot), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) {
        perror("stand-in CUDA: handles");
        abort();
    }
    return space;
}

void *handle_take(enum handle_kind kind)
{
    __typeof__(&pools[0]) pool = &pools[kind];
    struct slot *slot = NULL;
    pthread_mutex_lock(&lock);
    struct slot *slots = atomic_load(&pool->slots);
    if (!slots) {
        slots = reserve();
        atomic_store(&pool->slots, slots);
    }
    uint32_t count = atomic_load(&pool->count);
    if (pool->first_free) {
        slot = &slots[pool->first_free - 1];
        pool->first_free = slot->handle.next_free;
    } else if (count < MAX_HANDLES) {
        slot = &slots[count];
        atomic_store(&pool->count, count + 1);
    }
    if (slot) {
        memset((char *)slot + sizeof(struct handle), 0, sizeof *slot - sizeof(struct handle));
        atomic_store_explicit(&slot->handle.kind, kind, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return slot;
}

void handle_release(void *object)
{
    struct slot *slot = object;
    pthread_mutex_lock(&lock);
    __typeof__(&pools[0]) pool = &pools[atomic_load(&slot->handle.kind)];
    atomic_store(&slot->handle.kind, HANDLE_FREE);
    slot->handle.next_free = pool->first_free;
    pool->first_free = (uint32_t)(slot - atomic_load(&pool->slots)) + 1;
    pthread_mutex_unlock(&lock);
}

bool handle_is(const void *handle, enum handle_kind kind)
{
    uintptr_t base = (uintptr_t)atomic_load_explicit(&pools[kind].slots, memory_order_acquire);
    uintptr_t offset = (uintptr_t)handle - base;
    if (!base || (uintptr_t)handle < base || offset % sizeof(struct slot) ||
        offset / sizeof(struct slot) >= MAX_HANDLES)
        return false;
    const struct handle *header = handle;
    return atomic_load_explicit(&header->kind, memory_order_acquire) == (uint32_t)kind;
}

void handles_each(enum handle_kind kind, void (*visit)(void *object, void *context), void *context)
{
    struct slot *slots = atomic_load(&pools[kind].slots);
    uint32_t count = atomic_load(&pools[kind].count);
    for (uint32_t i = 0; i < count; i++)
        if (atomic_load(&slots[i].handle.kind) == (uint32_t)kind)
            visit(&slots[i], context);
}
