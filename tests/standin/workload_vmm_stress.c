/* Commands with many calls of the virtual memory management. */
#include <pthread.h>
#include <stdlib.h>

#include "workload_crew.h"
#include "workload_options.h"
#include "workload_vmm.h"

/* ---- what PyTorch's expandable segments do ------------------------------ */

CALL_SITE static int expand(struct tally *tally, uint64_t address, uint64_t bytes)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = vmm_properties(false);
    int error = vmm.cuMemCreate(&handle, bytes, &properties, 0);
    if (!tally_result(tally, error))
        return error;
    size_t number = kslot_add(tally, vmm_slot(KIND_VMM, handle, bytes, false));
    error = vmm.cuMemMap(address, bytes, 0, handle, 0);
    if (!error) {
        VMM_MAPPINGS(kslot_at(number))++;
        vmm_note_mapping(address, bytes, number);
        error = vmm_set_access(address, bytes);
    }
    kslot_release(tally, kslot_at(number));
    return error;
}

/* With `keep`, mappings stay, without any handle: see vfreeall. */
CALL_SITE static bool run_vexpand(struct words *words, struct reply *reply)
{
    uint64_t bytes, count, address;
    bool keep = false;
    const struct option options[] = { { "keep", OPTION_FLAG, &keep, 0 } };
    if (!vmm_load(reply) || !parse_u64(words->word[1], INT64_MAX, &bytes, reply) ||
        !parse_u64(words->word[2], UINT32_MAX, &count, reply) ||
        !parse_options(words, 3, options, 1, reply))
        return false;
    struct tally tally = { 0 };
    CUdeviceptr reserved = 0;
    size_t reservation = 0;
    int error = vmm.cuMemAddressReserve(&reserved, bytes * count, 0, 0, 0);
    if (!error)
        reservation = vmm_note_reservation(reserved, bytes * count);
    address = reserved;
    for (uint64_t i = 0; !error && i < count; i++, address += bytes)
        error = expand(&tally, address, bytes);
    if (!error && !keep)
        error = vmm_unmap(&tally, reserved, bytes * count);
    if (!error && !keep)
        error = vmm_unreserve(vmm_reservation_at(reservation));
    truth_add(&tally);
    reply_tally(reply, &tally);
    if (error)
        reply_add(reply, " error=%d", error);
    return error == 0;
}

/* ---- valid calls in a random order, on several threads ------------------ */

#define OBJECTS 64
#define PLACES 4 /* where each can be mapped, next to each other */

/* Several threads work on each, one after another. */
static struct object {
    pthread_mutex_t lock;
    CUmemGenericAllocationHandle handle; /* while references or mappings */
    uint64_t bytes, reserved;            /* the reservation; 0: none */
    uint64_t references;
    bool mapped[PLACES];
} * objects;
static uint64_t random_seed;
static bool random_on_host;
static int random_device;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int mapped_count(const struct object *object)
{
    int count = 0;
    for (int i = 0; i < PLACES; i++)
        count += object->mapped[i];
    return count;
}

static void settle(struct tally *tally, struct object *object)
{
    if (!object->references && !mapped_count(object))
        tally_lose(tally, KIND_VMM, object->bytes, random_on_host);
}

/* The object has neither references nor mappings. */
static void begin(struct tally *tally, struct object *object, uint64_t random)
{
    if (object->reserved && random % 4 == 0) {
        if (tally_result(tally, vmm.cuMemAddressFree(object->reserved, PLACES * object->bytes)))
            object->reserved = 0;
        return;
    }
    if (!object->reserved)
        object->bytes = (1 + random / 4 % 4) * VMM_STEP;
    CUmemAllocationProp properties = vmm_properties(random_on_host);
    if (!tally_result(tally, vmm.cuMemCreate(&object->handle, object->bytes, &properties, 0)))
        return;
    tally->allocs++;
    tally_gain(tally, KIND_VMM, object->bytes, random_on_host);
    object->references = 1;
}

static void map(struct tally *tally, struct object *object, int place)
{
    CUdeviceptr reserved = object->reserved;
    if (!reserved) {
        if (!tally_result(tally,
                          vmm.cuMemAddressReserve(&reserved, PLACES * object->bytes, 0, 0, 0)))
            return;
        object->reserved = reserved;
    }
    uint64_t address = reserved + (uint64_t)place * object->bytes;
    if (!tally_result(tally, vmm.cuMemMap(address, object->bytes, 0, object->handle, 0)))
        return;
    object->mapped[place] = true;
    tally_result(tally, vmm_set_access(address, object->bytes));
}

/* With its neighbours, if those are mapped too: one call for several. */
static void unmap(struct tally *tally, struct object *object, int first)
{
    int end = first;
    while (end < PLACES && object->mapped[end])
        end++;
    uint64_t address = object->reserved + (uint64_t)first * object->bytes;
    if (!tally_result(tally, vmm.cuMemUnmap(address, (uint64_t)(end - first) * object->bytes)))
        return;
    for (int i = first; i < end; i++)
        object->mapped[i] = false;
    settle(tally, object);
}

static void release(struct tally *tally, struct object *object)
{
    if (!tally_result(tally, vmm.cuMemRelease(object->handle)))
        return;
    tally->frees++;
    object->references--;
    settle(tally, object);
}

static void retain(struct tally *tally, struct object *object, int place)
{
    CUmemGenericAllocationHandle handle;
    void *address = (void *)(uintptr_t)(object->reserved + (uint64_t)place * object->bytes + 1);
    if (!tally_result(tally, vmm.cuMemRetainAllocationHandle(&handle, address)))
        return;
    object->references++;
    if (handle != object->handle)
        abort(); /* the driver has one handle for one memory */
}

CALL_SITE static void random_step(struct tally *tally, struct object *object, uint64_t random)
{
    int place = (int)(random >> 8 & (PLACES - 1));
    if (!object->references && !mapped_count(object))
        begin(tally, object, random >> 16);
    else if (object->references && random >> 12 & 1)
        release(tally, object);
    else if (!object->mapped[place] && object->references)
        map(tally, object, place);
    else if (object->mapped[place] && random >> 13 & 1)
        retain(tally, object, place);
    else if (object->mapped[place])
        unmap(tally, object, place);
}

static void random_body(struct member *member)
{
    uint64_t state = (random_seed + member->number) * 0x9e3779b97f4a7c15ull | 1;
    thread_device = random_device;
    for (uint64_t i = 0; i < member->count; i++) {
        uint64_t random = next_random(&state) >> 16;
        struct object *object = &objects[random % OBJECTS];
        pthread_mutex_lock(&object->lock);
        random_step(&member->tally, object, random / OBJECTS);
        pthread_mutex_unlock(&object->lock);
    }
}

/* The rest becomes ordinary slots; it is in the totals already. */
static void keep_objects(void)
{
    struct tally counted = { 0 };
    for (int i = 0; i < OBJECTS; i++) {
        const struct object *object = &objects[i];
        if (object->reserved)
            vmm_note_reservation(object->reserved, PLACES * object->bytes);
        if (!object->references && !mapped_count(object))
            continue;
        struct kslot slot = vmm_slot(KIND_VMM, object->handle, object->bytes, random_on_host);
        VMM_REFERENCES(&slot) = object->references;
        VMM_MAPPINGS(&slot) = (uint64_t)mapped_count(object);
        size_t number = kslot_add(&counted, slot);
        for (int place = 0; place < PLACES; place++)
            if (object->mapped[place])
                vmm_note_mapping(object->reserved + (uint64_t)place * object->bytes, object->bytes,
                                 number);
    }
}

static bool run_vrandom(struct words *words, struct reply *reply)
{
    uint64_t steps, threads = 4;
    struct member crew[64] = { 0 };
    random_on_host = false;
    random_device = thread_device;
    const struct option options[] = { { "threads", OPTION_NUMBER, &threads, 64 },
                                      { "host", OPTION_FLAG, &random_on_host, 0 } };
    if (!vmm_load(reply) || !parse_u64(words->word[1], UINT32_MAX, &random_seed, reply) ||
        !parse_u64(words->word[2], MAX_CALLS, &steps, reply) ||
        !parse_options(words, 3, options, 2, reply) || !threads)
        return false;
    objects = calloc(OBJECTS, sizeof *objects);
    for (int i = 0; i < OBJECTS; i++)
        pthread_mutex_init(&objects[i].lock, NULL);
    for (uint64_t i = 0; i < threads; i++)
        crew[i] = (struct member){ .body = random_body, .number = i, .count = steps / threads };
    struct tally total = run_crew(crew, (unsigned int)threads);
    keep_objects();
    free(objects);
    reply_tally(reply, &total);
    reply_add(reply, " vmm_live=%ld vmm_bytes=%ld", total.kinds[KIND_VMM].live,
              total.kinds[KIND_VMM].bytes);
    return true;
}

const struct command vmm_stress_commands[] = {
    { "vexpand", "vexpand SIZE COUNT [keep]", 2, 3, NEEDS_API, run_vexpand },
    { "vrandom", "vrandom SEED STEPS [threads=N] [host]", 2, 4, NEEDS_API, run_vrandom },
    { .name = NULL },
};
