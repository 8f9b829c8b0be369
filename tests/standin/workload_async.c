/* Commands about stream-ordered memory and its pools. */
#include <stdlib.h>
#include <string.h>

#include "workload.h"
#include "workload_async.h"
#include "workload_options.h"

/* One command runs at a time, on whichever thread: no lock. */
static struct pool {
    void *pool;
    bool on_host;
} * pools;
static size_t pool_count;

/* An address is freed on the device of its allocation; see kslot.more. */
static int release_async(struct kslot *slot)
{
    return api.pools->release((void *)(uintptr_t)slot->handle, (void *)(uintptr_t)slot->more[0]);
}

struct kslot async_slot(enum memory_kind kind, void *address, size_t bytes, void *stream)
{
    return (struct kslot){ .kind = kind,
                           .handle = (uintptr_t)address,
                           .bytes = bytes,
                           .release = release_async,
                           .more = { (uintptr_t)stream } };
}

static struct pool *find_pool(const char *text, struct reply *reply)
{
    uint64_t number;
    if (!parse_u64(text, SIZE_MAX, &number, reply))
        return NULL;
    if (number < pool_count)
        return &pools[number];
    reply_add(reply, "no pool %s", text);
    return NULL;
}

/* From the pool, or from the current one of the device. */
CALL_SITE static bool alloc_blocks(struct reply *reply, const struct pool *pool, uint64_t bytes,
                                   uint64_t count, void *stream)
{
    struct tally tally = { 0 };
    uint64_t shown = 0;
    for (uint64_t i = 0; i < count; i++) {
        void *address = NULL;
        int error = pool ? api.pools->alloc_from(&address, bytes, pool->pool, stream)
                         : api.pools->alloc(&address, bytes, stream);
        if (!tally_result(&tally, error) || !address)
            continue;
        struct kslot slot = async_slot(KIND_ASYNC, address, bytes, stream);
        slot.on_host = pool && pool->on_host;
        kslot_add(&tally, slot);
        reply_handle(reply, shown++, slot.handle);
    }
    return reply_done(reply, &tally);
}

/* `first` is the number of the word with the size; a count and options follow. */
static bool parse_allocation(struct words *words, int first, uint64_t *bytes, uint64_t *count,
                             void **stream, struct reply *reply)
{
    const char *text = NULL;
    bool captured;
    const struct option options[] = { { NULL, OPTION_NUMBER, count, UINT32_MAX },
                                      { "stream", OPTION_TEXT, &text, 0 } };
    *count = 1;
    if (!parse_u64(words->word[first], SIZE_MAX, bytes, reply) ||
        !parse_options(words, first + 1, options, 2, reply) ||
        !stream_named(text, stream, &captured, reply))
        return false;
    if (captured)
        reply_add(reply, "stream %s is captured: see gcapture", text);
    return !captured;
}

static bool run_async(struct words *words, struct reply *reply)
{
    uint64_t bytes, count;
    void *stream;
    return parse_allocation(words, 1, &bytes, &count, &stream, reply) &&
           alloc_blocks(reply, NULL, bytes, count, stream);
}

static bool run_poolalloc(struct words *words, struct reply *reply)
{
    uint64_t bytes, count;
    void *stream;
    const struct pool *pool = find_pool(words->word[1], reply);
    return pool && parse_allocation(words, 2, &bytes, &count, &stream, reply) &&
           alloc_blocks(reply, pool, bytes, count, stream);
}

/* A kslot's memory by the other kind of free than the one that kfree takes. */
CALL_SITE static bool run_afree(struct words *words, struct reply *reply)
{
    uint64_t first, count = 1;
    bool plain = false;
    const struct option options[] = { { NULL, OPTION_NUMBER, &count, UINT32_MAX },
                                      { "plain", OPTION_FLAG, &plain, 0 } };
    if (!parse_u64(words->word[1], SIZE_MAX, &first, reply) ||
        !parse_options(words, 2, options, 2, reply))
        return false;
    struct tally tally = { 0 };
    for (uint64_t i = first; i < first + count && kslot_at(i); i++) {
        struct kslot *slot = kslot_at(i);
        void *address = (void *)(uintptr_t)slot->handle;
        int error = plain ? api.release(address) : api.pools->release(address, NULL);
        if (!tally_result(&tally, error))
            continue;
        tally.frees++;
        kslot_end(&tally, slot);
    }
    reply_add(reply, "frees=%lu", tally.frees);
    return reply_done(reply, &tally);
}

/* A slot of alloc's, by the free for stream-ordered memory. */
CALL_SITE static bool run_freeasync(struct words *words, struct reply *reply)
{
    uint64_t first, count = 1;
    struct tally tally = { 0 };
    if (!strcmp(words->word[1], "null")) {
        tally.nullfrees += tally_result(&tally, api.pools->release(NULL, NULL));
        truth_add(&tally);
        reply_failures(reply, &tally);
        return true;
    }
    if (!parse_u64(words->word[1], SIZE_MAX, &first, reply) ||
        !parse_optional(words, 2, UINT32_MAX, &count, reply))
        return false;
    for (uint64_t i = first; i < first + count && slot_at(i); i++) {
        struct slot *slot = slot_at(i);
        if (!slot->live || !tally_result(&tally, api.pools->release(slot->address, NULL)))
            continue;
        slot->live = false;
        tally.frees++;
        tally_block(&tally, -1, slot->bytes);
    }
    reply_add(reply, "frees=%lu", tally.frees);
    return reply_done(reply, &tally);
}

/* ---- pools ------------------------------------------------------------- */

static bool add_pool(struct reply *reply, void *pool, bool on_host, int error)
{
    if (error)
        return reply_error(reply, error);
    pools = realloc(pools, (pool_count + 1) * sizeof *pools);
    pools[pool_count] = (struct pool){ pool, on_host };
    reply_add(reply, "%zu 0x%lx", pool_count++, (uintptr_t)pool);
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
static bool reply_attributes(struct reply *reply, const struct pool *pool, const char *name)
{
    for (int i = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD; i <= CU_MEMPOOL_ATTR_USED_MEM_HIGH; i++) {
        uint64_t value;
        if (name && strcmp(name, attributes[i]))
            continue;
        int error = api.pools->pool_get(pool->pool, i, &value);
        if (error)
            return reply_error(reply, error);
        reply_add(reply, "%s%s=%lu", reply->length ? " " : "", attributes[i], value);
    }
    return true;
}

static bool change_pool(struct words *words, const struct pool *pool, struct reply *reply)
{
    const char *what = words->word[1];
    uint64_t value = 0;
    if (words->count > 3 && strcmp(what, "attr") &&
        !parse_u64(words->word[3], SIZE_MAX, &value, reply))
        return false;
    if (!strcmp(what, "destroy"))
        return reply_error(reply, api.pools->pool_destroy(pool->pool));
    if (!strcmp(what, "trim"))
        return reply_error(reply, api.pools->pool_trim(pool->pool, value));
    if (!strcmp(what, "attr"))
        return reply_attributes(reply, pool, words->word[3]);
    if (!strcmp(what, "threshold"))
        return reply_error(
            reply, api.pools->pool_set(pool->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    if (!strcmp(what, "use"))
        return reply_error(reply, api.pools->device_set_pool(thread_device, pool->pool));
    reply_add(reply, "pool %s: unknown", what);
    return false;
}

CUmemPoolProps pool_properties(bool on_host)
{
    return (CUmemPoolProps){
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { on_host ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                      on_host ? 0 : thread_device },
    };
}

CALL_SITE static bool run_pool(struct words *words, struct reply *reply)
{
    void *pool = NULL;
    const char *what = words->word[1], *which = words->word[2];
    if (!strcmp(what, "create")) {
        bool on_host = which && !strcmp(which, "host");
        CUmemPoolProps properties = pool_properties(on_host);
        int error = api.pools->pool_create(&pool, &properties);
        return add_pool(reply, pool, on_host, error);
    }
    if (!strcmp(what, "default")) {
        int error = api.pools->device_default_pool(&pool, thread_device);
        return add_pool(reply, pool, false, error);
    }
    const struct pool *found = which ? find_pool(which, reply) : NULL;
    if (!which)
        reply_add(reply, "pool %s: which?", what);
    return found && change_pool(words, found, reply);
}

const struct command async_commands[] = {
    { "async", "async SIZE [COUNT] [stream=STREAM]", 1, 3, NEEDS_API, run_async },
    { "poolalloc", "poolalloc POOL SIZE [COUNT] [stream=STREAM]", 2, 4, NEEDS_API, run_poolalloc },
    { "afree", "afree FIRST [COUNT] [plain]", 1, 3, NEEDS_API, run_afree },
    { "freeasync", "freeasync FIRST [COUNT] | freeasync null", 1, 2, NEEDS_API, run_freeasync },
    { "pool",
      "pool create [host] | pool default | pool destroy POOL | pool trim POOL [KEPT] | "
      "pool attr POOL [NAME] | pool threshold POOL BYTES | pool use POOL",
      1, 3, NEEDS_API, run_pool },
    { .name = NULL },
};
