/* Commands about stream-ordered memory and its pools, and memory of other processes and APIs. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workload.h"

struct pool {
    bool live, on_host;
    void *pool;
};

static struct list pools = LIST(struct pool, "pool");

/* An address is freed on the device of its allocation, on the stream in `more`. */
static int release_async(struct slot *slot)
{
    return api.async_free((void *)slot->handle, (void *)slot->more[0]);
}

struct slot async_slot(enum memory_kind kind, void *address, size_t bytes, void *stream)
{
    return (struct slot){ .kind = kind,
                          .handle = (uintptr_t)address,
                          .bytes = bytes,
                          .release = release_async,
                          .more = { (uintptr_t)stream } };
}

/* From the pool, or from the current one of the device. */
CALL_SITE static bool alloc_blocks(struct reply *reply, const struct pool *pool, uint64_t bytes,
                                   uint64_t count, const char *stream_name)
{
    struct tally tally = { 0 };
    uint64_t shown = 0;
    void *stream;
    if (!running_stream(stream_name, &stream, reply))
        return false;
    for (uint64_t i = 0; i < count; i++) {
        void *address = NULL;
        int error = pool ? api.alloc_from(&address, bytes, pool->pool, stream)
                         : api.async_alloc(&address, bytes, stream);
        if (!tally_result(&tally, error) || !address)
            continue;
        struct slot slot = async_slot(KIND_ASYNC, address, bytes, stream);
        slot.on_host = pool && pool->on_host;
        slot_add(&tally, slot);
        reply_handle(reply, shown++, slot.handle);
    }
    return reply_done(reply, &tally);
}

static bool run_async(const struct args *args, struct reply *reply)
{
    return alloc_blocks(reply, NULL, args->number[0], args->number[1], args->text[2]);
}

static bool run_poolalloc(const struct args *args, struct reply *reply)
{
    const struct pool *pool = list_named(&pools, args->number[0], reply);
    return pool && alloc_blocks(reply, pool, args->number[1], args->number[2], args->text[3]);
}

/* The slots from `first` on, by the plain free or by that for stream-ordered memory. */
static bool free_by(struct list *list, uint64_t first, uint64_t count, bool plain,
                    struct reply *reply)
{
    struct slot *slot;
    struct tally tally = { 0 };
    for (uint64_t i = first; i < first + count && (slot = list_at(list, i)); i++) {
        void *address = (void *)slot->handle;
        if (list == &blocks && !slot->live)
            continue;
        slot->kept = false;
        slot_freed(&tally, slot, plain ? api.release(address) : api.async_free(address, NULL));
    }
    reply_add(reply, "frees=%lu", tally.frees);
    return reply_done(reply, &tally);
}

/* A kslot's memory by the other kind of free than the one that kfree takes. */
CALL_SITE static bool run_afree(const struct args *args, struct reply *reply)
{
    return free_by(&slots, args->number[0], args->number[1], args->number[2], reply);
}

/* A slot of alloc's, by the free for stream-ordered memory. */
CALL_SITE static bool run_freeasync(const struct args *args, struct reply *reply)
{
    uint64_t first;
    struct tally tally = { 0 };
    if (strcmp(args->text[0], "null"))
        return parse_u64(args->text[0], &first, reply) &&
               free_by(&blocks, first, args->number[1], false, reply);
    tally.nullfrees += tally_result(&tally, api.async_free(NULL, NULL));
    return reply_done(reply, &tally);
}

/* ---- pools ------------------------------------------------------------- */

static bool add_pool(struct reply *reply, void *pool, bool on_host, int error)
{
    struct pool added = { true, on_host, pool };
    if (!reply_error(reply, error))
        return false;
    reply_add(reply, "%zu 0x%lx", list_add(&pools, &added), (uintptr_t)pool);
    return true;
}

static const char *const attributes[] = {
    [CU_MEMPOOL_ATTR_RELEASE_THRESHOLD] = "threshold",
    [CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT] = "reserved",
    [CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH] = "reserved_high",
    [CU_MEMPOOL_ATTR_USED_MEM_CURRENT] = "used",
    [CU_MEMPOOL_ATTR_USED_MEM_HIGH] = "used_high",
};

/* The attribute of that name, or all of them. */
static bool reply_attributes(struct reply *reply, void *pool, const char *name)
{
    for (int i = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD; i <= CU_MEMPOOL_ATTR_USED_MEM_HIGH; i++) {
        uint64_t value;
        if (name && strcmp(name, attributes[i]))
            continue;
        if (!reply_error(reply, api.pool_get(pool, i, &value)))
            return false;
        reply_add(reply, "%s%s=%lu", reply->length ? " " : "", attributes[i], value);
    }
    return true;
}

/* "host", "domain" (the second one of the device), or a location of the future. */
CUmemLocation location_named(const char *where)
{
    if (!where)
        return (CUmemLocation){ CU_MEM_LOCATION_TYPE_DEVICE, { thread_device } };
    if (strcmp(where, "domain"))
        return (CUmemLocation){ strcmp(where, "host") ? CU_MEM_LOCATION_TYPE_OF_THE_FUTURE
                                                      : CU_MEM_LOCATION_TYPE_HOST,
                                { 0 } };
    CUmemLocation part = { CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, { 0 } };
    part.localized.deviceId = (unsigned char)thread_device;
    part.localized.localityDomainId = 1;
    return part;
}

CUmemPoolProps pool_properties(const char *where)
{
    return (CUmemPoolProps){
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = location_named(where),
    };
}

CALL_SITE static bool run_pool(const struct args *args, struct reply *reply)
{
    void *pool = NULL;
    uint64_t number = 0, value = 0;
    int error;
    const char *what = args->text[0], *which = args->text[1], *more = args->text[2];
    if (!strcmp(what, "create")) {
        CUmemPoolProps properties = pool_properties(which);
        error = api.pool_create(&pool, &properties);
        return add_pool(reply, pool, properties.location.type == CU_MEM_LOCATION_TYPE_HOST, error);
    }
    if (!strcmp(what, "default")) {
        error = api.device_default_pool(&pool, thread_device);
        return add_pool(reply, pool, false, error);
    }
    if (!which || !parse_u64(which, &number, reply))
        return which || reply_no(reply, "pool %s: which?", what);
    const struct pool *found = list_named(&pools, number, reply);
    if (!found)
        return false;
    if (!strcmp(what, "attr"))
        return reply_attributes(reply, found->pool, more);
    if (more && !parse_u64(more, &value, reply))
        return false;
    if (!strcmp(what, "destroy"))
        error = api.pool_destroy(found->pool);
    else if (!strcmp(what, "trim"))
        error = api.pool_trim(found->pool, value);
    else if (!strcmp(what, "threshold"))
        error = api.pool_set(found->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    else if (!strcmp(what, "use"))
        error = api.device_set_pool(thread_device, found->pool);
    else
        return reply_no(reply, "pool %s: unknown", what);
    return reply_error(reply, error);
}

/* ---- other processes --------------------------------------------------- */

/* The offset of the size in the real driver's handle. */
#define HANDLE_SIZE_OFFSET 16

CALL_SITE static bool run_ipcget(const struct args *args, struct reply *reply)
{
    CUipcMemHandle handle;
    const struct slot *slot = list_at(&blocks, args->number[0]);
    if (!slot)
        return reply_no(reply, "no slot %s", args->text[0]);
    if (!reply_error(reply, api.ipc_get(&handle, (char *)slot->handle + args->number[1])))
        return false;
    reply_hex(reply, &handle, sizeof handle);
    return true;
}

/* `more[0]` of the slot is its open count: it has one address, and takes as many closes. */
static int release_ipc(struct slot *slot)
{
    int error = api.ipc_close((void *)slot->handle);
    if (!error)
        slot->kept = --slot->more[0] > 0;
    return error;
}

CALL_SITE static bool run_ipcopen(const struct args *args, struct reply *reply)
{
    CUipcMemHandle handle;
    void *address;
    struct tally tally = { 0 };
    if (!parse_hex(args->text[0], &handle, sizeof handle, reply))
        return false;
    if (tally_result(&tally, api.ipc_open(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))) {
        struct slot *open = slot_of(KIND_IMPORTED, (uintptr_t)address);
        struct slot slot = { .kind = KIND_IMPORTED,
                             .handle = (uintptr_t)address,
                             .with_context = true,
                             .release = release_ipc,
                             .more = { 1 } };
        memcpy(&slot.bytes, handle.reserved + HANDLE_SIZE_OFFSET, sizeof slot.bytes);
        if (open) {
            open->more[0]++;
            tally.allocs++;
        } else {
            slot_add(&tally, slot);
        }
        reply_handle(reply, 0, slot.handle);
    }
    return reply_done(reply, &tally);
}

/* Frees a kslot of any kind. */
CALL_SITE static bool close_slot(const struct args *args, struct reply *reply)
{
    struct slot *slot = slot_at(args->number[0]);
    if (!slot || !slot->release)
        return reply_no(reply, "no kslot %s", args->text[0]);
    struct tally tally = { 0 };
    slot_release(&tally, slot);
    reply_add(reply, "frees=%lu live=%d", tally.frees, slot->live);
    return reply_done(reply, &tally);
}

/* ---- other APIs -------------------------------------------------------- */

static int release_external(struct slot *slot)
{
    return api.external_destroy((void *)slot->handle);
}

/* The file is one that another API would export; the driver owns it on success. */
CALL_SITE static bool run_extimport(const struct args *args, struct reply *reply)
{
    void *memory;
    int fd = memfd_create("external", 0);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = args->number[0]
    };
    struct tally tally = { 0 };
    if (tally_result(&tally, api.external_import(&memory, &description))) {
        struct slot slot = { .kind = KIND_IMPORTED,
                             .handle = (uintptr_t)memory,
                             .bytes = args->number[0],
                             .release = release_external };
        slot_add(&tally, slot);
        reply_handle(reply, 0, slot.handle);
    } else {
        close(fd);
    }
    return reply_done(reply, &tally);
}

/* Addresses of imported memory: like mapping and unmapping, it is neither
 * counted as an allocation nor its end as a free. */
CALL_SITE static bool run_extmap(const struct args *args, struct reply *reply)
{
    uint64_t address, offset = args->number[1];
    const struct slot *slot = slot_at(args->number[0]);
    if (!slot)
        return reply_no(reply, "no kslot %s", args->text[0]);
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC description = {
        .offset = offset, .size = args->number[2] ? args->number[2] : slot->bytes - offset
    };
    if (!reply_error(reply,
                     api.external_map((void **)&address, (void *)slot->handle, &description)))
        return false;
    reply_handle(reply, 0, address);
    return true;
}

CALL_SITE static bool run_extunmap(const struct args *args, struct reply *reply)
{
    return reply_error(reply, api.release((void *)args->number[0]));
}

const struct command async_commands[] = {
    { "async SIZE [COUNT] [stream=]", NEEDS_API, run_async },
    { "poolalloc POOL SIZE [COUNT] [stream=]", NEEDS_API, run_poolalloc },
    { "afree FIRST [COUNT] [plain]", NEEDS_API, run_afree },
    { "freeasync <first|null> [COUNT]", NEEDS_API, run_freeasync },
    /* create [host|domain|future], default; of a pool: destroy, trim [KEPT], attr [NAME], threshold
       BYTES, use */
    { "pool <what> [<pool|host>] [<value>]", NEEDS_API, run_pool },
    { "ipcget SLOT [OFFSET]", NEEDS_API, run_ipcget },
    { "ipcopen <hex>", NEEDS_API, run_ipcopen },
    { "ipcclose KSLOT", NEEDS_API, close_slot },
    { "extimport SIZE", NEEDS_API, run_extimport },
    { "extmap KSLOT [OFFSET] [SIZE]", NEEDS_API, run_extmap },
    { "extunmap ADDRESS", NEEDS_API, run_extunmap },
    { "extdestroy KSLOT", NEEDS_API, close_slot },
    { .usage = NULL },
};
