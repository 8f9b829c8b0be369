/* Commands of the virtual memory management, one call after another and many, and those that share
 * physical memory and pools through file descriptors. */
#define _GNU_SOURCE
#include "workload_vmm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#define STEP (2ull << 20)

struct vmm vmm;

/* What is mapped and reserved, for the commands that end it. */
struct range {
    bool live;
    uint64_t address, bytes;
    size_t slot; /* of a mapping */
};

static struct list mappings = LIST(struct range, "mapping"),
                   reservations = LIST(struct range, "reservation");

bool vmm_load(struct reply *reply)
{
    static const struct import {
        const char *name;
        void **function;
    } imports[] = {
#define FUNCTION(symbol) { #symbol, (void **)&vmm.symbol },
        VMM_FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    static bool loaded;
    if (loaded)
        return true;
    __typeof__(&cuInit) init = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    bool found = library && (*(void **)&init = dlsym(library, "cuInit"));
    for (size_t i = 0; found && i < sizeof imports / sizeof *imports; i++)
        found = (*imports[i].function = dlsym(library, imports[i].name));
    if (!found)
        reply_add(reply, "%s", dlerror());
    loaded = found && init(0) == CUDA_SUCCESS;
    return loaded;
}

static CUmemAllocationProp properties_of(bool on_host)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = location_named(on_host ? "host" : NULL),
    };
}

static int set_access(CUdeviceptr address, size_t bytes)
{
    CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, { thread_device } }, 3 };
    return vmm.cuMemSetAccess(address, bytes, &access, 1);
}

/* Physical memory is a kslot: it exists while it has references or mappings, which these fields of
 * the slot count. */
#define REFERENCES(slot) ((slot)->more[0])
#define MAPPINGS(slot) ((slot)->more[1])

static int release_physical(struct slot *slot)
{
    int error = vmm.cuMemRelease(slot->handle);
    if (!error) {
        REFERENCES(slot)--;
        slot->kept = REFERENCES(slot) || MAPPINGS(slot);
    }
    return error;
}

static struct slot physical_slot(enum memory_kind kind, uint64_t handle, size_t bytes, bool on_host)
{
    return (struct slot){ .kind = kind,
                          .handle = handle,
                          .bytes = bytes,
                          .on_host = on_host,
                          .release = release_physical,
                          .more = { 1, 0 } };
}

static size_t note(struct list *ranges, uint64_t address, uint64_t bytes, size_t slot)
{
    struct range range = { true, address, bytes, slot };
    return list_add(ranges, &range);
}

static int unmap(struct tally *tally, uint64_t address, uint64_t bytes)
{
    int error = vmm.cuMemUnmap(address, bytes);
    struct range *range;
    FOR_EACH(range, &mappings)
    {
        if (error || !range->live || range->address < address || range->address >= address + bytes)
            continue;
        struct slot *slot = slot_at(range->slot);
        range->live = false;
        if (!--MAPPINGS(slot) && !REFERENCES(slot))
            slot_end(tally, slot);
    }
    return error;
}

static int unreserve(struct range *range)
{
    int error = vmm.cuMemAddressFree(range->address, range->bytes);
    range->live = error != 0;
    return error;
}

void vmm_forget(void)
{
    mappings.count = reservations.count = 0;
}

static struct slot *find_physical(const struct args *args, struct reply *reply)
{
    struct slot *slot = slot_at(args->number[0]);
    if (slot && slot->release == release_physical)
        return vmm_load(reply) ? slot : NULL;
    reply_add(reply, "kslot %s is no handle", args->text[0]);
    return NULL;
}

CALL_SITE static bool run_vcreate(const struct args *args, struct reply *reply)
{
    uint64_t bytes = args->number[0], shown = 0;
    bool on_host = args->number[2];
    if (!vmm_load(reply))
        return false;
    CUmemAllocationProp properties = properties_of(on_host);
    if (args->text[3])
        properties.location = location_named(args->text[3]);
    struct tally tally = { 0 };
    for (uint64_t i = 0; i < args->number[1]; i++) {
        CUmemGenericAllocationHandle handle;
        if (!tally_result(&tally, vmm.cuMemCreate(&handle, bytes, &properties, 0)))
            continue;
        slot_add(&tally, physical_slot(KIND_VMM, handle, bytes, on_host));
        reply_handle(reply, shown++, handle);
    }
    return reply_done(reply, &tally);
}

/* One release too many is an error of the driver's. */
CALL_SITE static bool run_vrelease(const struct args *args, struct reply *reply)
{
    struct slot *slot = find_physical(args, reply);
    if (!slot)
        return false;
    struct tally tally = { 0 };
    for (uint64_t i = 0; i < args->number[1]; i++)
        slot_release(&tally, slot);
    reply_add(reply, "frees=%lu live=%d", tally.frees, slot->live);
    return reply_done(reply, &tally);
}

CALL_SITE static bool run_vretain(const struct args *args, struct reply *reply)
{
    CUmemGenericAllocationHandle handle;
    struct slot *slot = find_physical(args, reply);
    struct range *range, *mapping = NULL;
    FOR_EACH(range, &mappings)
    if (!mapping && range->live && slot_at(range->slot) == slot)
        mapping = range;
    if (!slot || !mapping)
        return reply_no(reply, "not mapped");
    if (!reply_error(reply, vmm.cuMemRetainAllocationHandle(&handle, (void *)mapping->address)))
        return false;
    REFERENCES(slot)++;
    reply_handle(reply, 0, handle);
    return handle == slot->handle;
}

CALL_SITE static bool run_vreserve(const struct args *args, struct reply *reply)
{
    CUdeviceptr address;
    if (!vmm_load(reply) ||
        !reply_error(reply, vmm.cuMemAddressReserve(&address, args->number[0], 0, 0, 0)))
        return false;
    reply_add(reply, "%zu 0x%llx", note(&reservations, address, args->number[0], 0), address);
    return true;
}

CALL_SITE static bool run_vfreeaddr(const struct args *args, struct reply *reply)
{
    struct range *reservation = list_named(&reservations, args->number[0], reply);
    return reservation && reply_error(reply, unreserve(reservation));
}

/* All of the handle's memory, at OFFSET in the reservation. */
CALL_SITE static bool run_vmap(const struct args *args, struct reply *reply)
{
    struct slot *slot = find_physical(args, reply);
    const struct range *reservation = list_named(&reservations, args->number[1], reply);
    if (!slot || !reservation)
        return false;
    uint64_t address = reservation->address + args->number[2];
    if (!reply_error(reply, vmm.cuMemMap(address, slot->bytes, 0, slot->handle, 0)))
        return false;
    MAPPINGS(slot)++;
    note(&mappings, address, slot->bytes, args->number[0]);
    reply_handle(reply, 0, address);
    return true;
}

CALL_SITE static bool run_vunmap(const struct args *args, struct reply *reply)
{
    struct tally tally = { 0 };
    if (!vmm_load(reply))
        return false;
    int error = unmap(&tally, args->number[0], args->number[1]);
    truth_add(&tally);
    return reply_error(reply, error);
}

/* All of it: mappings, references, reservations. */
CALL_SITE static bool run_vfreeall(const struct args *args, struct reply *reply)
{
    (void)args;
    struct range *range;
    struct slot *slot;
    struct tally tally = { 0 };
    if (!vmm_load(reply))
        return false;
    FOR_EACH(range, &mappings)
    if (range->live)
        tally_result(&tally, unmap(&tally, range->address, range->bytes));
    FOR_EACH(slot, &slots)
    while (slot->release == release_physical && slot->live)
        if (!slot_release(&tally, slot))
            break;
    FOR_EACH(range, &reservations)
    if (range->live)
        tally_result(&tally, unreserve(range));
    reply_add(reply, "frees=%lu", tally.frees);
    return reply_done(reply, &tally);
}

/* ---- sharing: pools are named by their handles here, as the pool command shows them --------- */

#define FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static bool reply_fd(struct reply *reply, int fd, int error)
{
    if (!error)
        reply_add(reply, "%d", fd);
    return reply_error(reply, error);
}

CALL_SITE static bool run_vexport(const struct args *args, struct reply *reply)
{
    int fd = -1;
    const struct slot *slot = find_physical(args, reply);
    if (!slot)
        return false;
    int error = vmm.cuMemExportToShareableHandle(&fd, slot->handle, FD, 0);
    return reply_fd(reply, fd, error);
}

/* Importers get the size by other means. */
CALL_SITE static bool run_vimport(const struct args *args, struct reply *reply)
{
    CUmemGenericAllocationHandle handle;
    struct tally tally = { 0 };
    if (!vmm_load(reply))
        return false;
    if (tally_result(&tally,
                     vmm.cuMemImportFromShareableHandle(&handle, (void *)args->number[0], FD))) {
        slot_add(&tally, physical_slot(KIND_IMPORTED, handle, args->number[1], false));
        reply_handle(reply, 0, handle);
    }
    return reply_done(reply, &tally);
}

CALL_SITE static bool run_poolexport(const struct args *args, struct reply *reply)
{
    int fd = -1;
    if (!vmm_load(reply))
        return false;
    int error = vmm.cuMemPoolExportToShareableHandle(&fd, (CUmemoryPool)args->number[0], FD, 0);
    return reply_fd(reply, fd, error);
}

CALL_SITE static bool run_poolimport(const struct args *args, struct reply *reply)
{
    CUmemoryPool pool;
    if (!vmm_load(reply) || !reply_error(reply, vmm.cuMemPoolImportFromShareableHandle(
                                                    &pool, (void *)args->number[0], FD, 0)))
        return false;
    reply_handle(reply, 0, (uintptr_t)pool);
    return true;
}

CALL_SITE static bool run_ptrexport(const struct args *args, struct reply *reply)
{
    CUmemPoolPtrExportData data;
    const struct slot *slot = slot_at(args->number[0]);
    if (!slot || !vmm_load(reply) ||
        !reply_error(reply, vmm.cuMemPoolExportPointer(&data, slot->handle)))
        return false;
    reply_hex(reply, &data, sizeof data);
    return true;
}

CALL_SITE static bool run_ptrimport(const struct args *args, struct reply *reply)
{
    CUmemPoolPtrExportData data;
    CUdeviceptr address;
    struct tally tally = { 0 };
    if (!vmm_load(reply) || !parse_hex(args->text[1], &data, sizeof data, reply))
        return false;
    if (tally_result(&tally,
                     vmm.cuMemPoolImportPointer(&address, (CUmemoryPool)args->number[0], &data))) {
        slot_add(&tally, async_slot(KIND_IMPORTED, (void *)address, args->number[2], NULL));
        reply_handle(reply, 0, address);
    }
    return reply_done(reply, &tally);
}

/* ---- what PyTorch's expandable segments do ------------------------------ */

CALL_SITE static int expand(struct tally *tally, uint64_t address, uint64_t bytes)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = properties_of(false);
    int error = vmm.cuMemCreate(&handle, bytes, &properties, 0);
    if (!tally_result(tally, error))
        return error;
    size_t number = slot_add(tally, physical_slot(KIND_VMM, handle, bytes, false));
    error = vmm.cuMemMap(address, bytes, 0, handle, 0);
    if (!error) {
        MAPPINGS(slot_at(number))++;
        note(&mappings, address, bytes, number);
        error = set_access(address, bytes);
    }
    slot_release(tally, slot_at(number));
    return error;
}

/* With `keep`, mappings stay, without any handle: see vfreeall. */
CALL_SITE static bool run_vexpand(const struct args *args, struct reply *reply)
{
    uint64_t bytes = args->number[0], count = args->number[1], keep = args->number[2];
    struct tally tally = { 0 };
    CUdeviceptr reserved = 0;
    size_t reservation = 0;
    if (!vmm_load(reply))
        return false;
    int error = vmm.cuMemAddressReserve(&reserved, bytes * count, 0, 0, 0);
    if (!error)
        reservation = note(&reservations, reserved, bytes * count, 0);
    for (uint64_t i = 0; !error && i < count; i++)
        error = expand(&tally, reserved + i * bytes, bytes);
    if (!error && !keep)
        error = unmap(&tally, reserved, bytes * count);
    if (!error && !keep)
        error = unreserve(list_at(&reservations, reservation));
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

static int mapped_count(const struct object *object)
{
    int count = 0;
    for (int i = 0; i < PLACES; i++)
        count += object->mapped[i];
    return count;
}

static void settle_object(struct tally *tally, struct object *object)
{
    if (!object->references && !mapped_count(object))
        tally_change(tally, KIND_VMM, -1, -(int64_t)object->bytes, random_on_host);
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
        object->bytes = (1 + random / 4 % 4) * STEP;
    CUmemAllocationProp properties = properties_of(random_on_host);
    if (!tally_result(tally, vmm.cuMemCreate(&object->handle, object->bytes, &properties, 0)))
        return;
    tally->allocs++;
    tally_change(tally, KIND_VMM, 1, (int64_t)object->bytes, random_on_host);
    object->references = 1;
}

static void map_object(struct tally *tally, struct object *object, int place)
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
    tally_result(tally, set_access(address, object->bytes));
}

/* With its neighbours, if those are mapped too: one call for several. */
static void unmap_object(struct tally *tally, struct object *object, int first)
{
    int end = first;
    while (end < PLACES && object->mapped[end])
        end++;
    uint64_t address = object->reserved + (uint64_t)first * object->bytes;
    if (!tally_result(tally, vmm.cuMemUnmap(address, (uint64_t)(end - first) * object->bytes)))
        return;
    for (int i = first; i < end; i++)
        object->mapped[i] = false;
    settle_object(tally, object);
}

static void release_object(struct tally *tally, struct object *object)
{
    if (!tally_result(tally, vmm.cuMemRelease(object->handle)))
        return;
    tally->frees++;
    object->references--;
    settle_object(tally, object);
}

static void retain_object(struct tally *tally, struct object *object, int place)
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
        release_object(tally, object);
    else if (!object->mapped[place] && object->references)
        map_object(tally, object, place);
    else if (object->mapped[place] && random >> 13 & 1)
        retain_object(tally, object, place);
    else if (object->mapped[place])
        unmap_object(tally, object, place);
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
            note(&reservations, object->reserved, PLACES * object->bytes, 0);
        if (!object->references && !mapped_count(object))
            continue;
        struct slot slot = physical_slot(KIND_VMM, object->handle, object->bytes, random_on_host);
        REFERENCES(&slot) = object->references;
        MAPPINGS(&slot) = (uint64_t)mapped_count(object);
        size_t number = slot_add(&counted, slot);
        for (int place = 0; place < PLACES; place++)
            if (object->mapped[place])
                note(&mappings, object->reserved + (uint64_t)place * object->bytes, object->bytes,
                     number);
    }
}

static bool run_vrandom(const struct args *args, struct reply *reply)
{
    uint64_t threads = args->text[2] ? args->number[2] : 4;
    random_seed = args->number[0];
    random_on_host = args->number[3];
    random_device = thread_device;
    if (!vmm_load(reply))
        return false;
    objects = calloc(OBJECTS, sizeof *objects);
    for (int i = 0; i < OBJECTS; i++)
        pthread_mutex_init(&objects[i].lock, NULL);
    struct member each = { .body = random_body, .count = args->number[1] / threads };
    struct tally total = run_crew(threads, each);
    keep_objects();
    free(objects);
    reply_tally(reply, &total);
    reply_add(reply, " vmm_live=%ld vmm_bytes=%ld", total.kinds[KIND_VMM].live,
              total.kinds[KIND_VMM].bytes);
    return true;
}

const struct command vmm_commands[] = {
    { "vcreate SIZE [COUNT] [host] [at=]", NEEDS_API, run_vcreate },
    { "vrelease KSLOT [COUNT]", NEEDS_API, run_vrelease },
    { "vretain KSLOT", NEEDS_API, run_vretain },
    { "vreserve SIZE", NEEDS_API, run_vreserve },
    { "vfreeaddr RESERVATION", NEEDS_API, run_vfreeaddr },
    { "vmap KSLOT RESERVATION [OFFSET]", NEEDS_API, run_vmap },
    { "vunmap ADDRESS SIZE", NEEDS_API, run_vunmap },
    { "vfreeall", NEEDS_API, run_vfreeall },
    { "vexport KSLOT", NEEDS_API, run_vexport },
    { "vimport FD SIZE", NEEDS_API, run_vimport },
    { "poolexport HANDLE", NEEDS_API, run_poolexport },
    { "poolimport FD", NEEDS_API, run_poolimport },
    { "ptrexport KSLOT", NEEDS_API, run_ptrexport },
    { "ptrimport POOLHANDLE <hex> SIZE", NEEDS_API, run_ptrimport },
    { "vexpand SIZE COUNT [keep]", NEEDS_API, run_vexpand },
    { "vrandom SEED STEPS [threads=N] [host]", NEEDS_API, run_vrandom },
    { .usage = NULL },
};
