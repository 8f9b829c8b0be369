/*
 * The workload with commands for blocks of PyTorch's allocator, "tensors", which
 * have names here. The replies of its commands have counts; the whole truth is in
 * that of `tsnapshot`. With LD_LIBRARY_PATH set to one of the folders c10_*, it
 * uses the allocator of that version of PyTorch.
 */
#include "torchlike.h"

#include <stdlib.h>
#include <string.h>

#include "torch_api.h"
#include "workload_options.h"

/* The blocks of a name, the oldest first. */
struct tensors {
    struct tensors *next;
    char *name;
    void **addresses;
    size_t count, capacity;
};

static struct tensors *all_tensors;

static struct tensors *find_tensors(const char *name)
{
    struct tensors *tensors = all_tensors;
    while (tensors && strcmp(tensors->name, name))
        tensors = tensors->next;
    return tensors;
}

static void *checked(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

void tensor_keep(const char *name, void *address)
{
    struct tensors *tensors = find_tensors(name);
    if (!tensors) {
        tensors = checked(calloc(1, sizeof *tensors));
        *tensors = (struct tensors){ .next = all_tensors, .name = checked(strdup(name)) };
        all_tensors = tensors;
    }
    if (tensors->count == tensors->capacity) {
        tensors->capacity = tensors->capacity ? 2 * tensors->capacity : 16;
        tensors->addresses =
            checked(realloc(tensors->addresses, tensors->capacity * sizeof(void *)));
    }
    tensors->addresses[tensors->count++] = address;
}

struct request {
    const char *name;
    uint64_t bytes, count, stream;
    bool raw;
};

/* Makes the tensors and replies with their number, and their addresses if few. Inlined, so that the
 * caller is the one seen on the stack. */
static inline __attribute__((always_inline)) bool make_tensors(const struct request *request,
                                                               struct reply *reply)
{
    uint64_t made = 0;
    for (; made < request->count; made++) {
        void *address = request->raw ? gp_torch_raw_malloc(request->bytes, request->stream)
                                     : gp_torch_malloc(request->bytes, request->stream);
        if (!address)
            break;
        tensor_keep(request->name, address);
        reply_add(reply, "%s%p", made ? " " : "", address);
    }
    if (made < request->count)
        reply_add(reply, "%sout of memory after %llu", made ? " " : "", (unsigned long long)made);
    return made == request->count;
}

CALL_SITE static bool run_tmalloc(struct words *words, struct reply *reply)
{
    struct request request = { .name = words->word[1], .count = 1 };
    const struct option options[] = {
        { NULL, OPTION_NUMBER, &request.count, UINT32_MAX },
        { "stream", OPTION_NUMBER, &request.stream, UINT64_MAX },
        { "raw", OPTION_FLAG, &request.raw, 0 },
    };
    return parse_u64(words->word[2], SIZE_MAX, &request.bytes, reply) &&
           parse_options(words, 3, options, 3, reply) && make_tensors(&request, reply);
}

/* ---- call sites that leak ------------------------------------------------- */

#define LEAK_SITE(site)                                                            \
    CALL_SITE static bool site(const struct request *request, struct reply *reply) \
    {                                                                              \
        return make_tensors(request, reply);                                       \
    }

LEAK_SITE(leak_forward)
LEAK_SITE(leak_backward)
LEAK_SITE(leak_optimizer)
LEAK_SITE(leak_loader)

static const struct {
    const char *name;
    bool (*make)(const struct request *request, struct reply *reply);
} leak_sites[] = {
    { "forward", leak_forward },
    { "backward", leak_backward },
    { "optimizer", leak_optimizer },
    { "loader", leak_loader },
};

/* The tensors have the site's name. */
static bool run_tleak(struct words *words, struct reply *reply)
{
    struct request request = { .name = words->word[1] };
    if (!parse_u64(words->word[2], UINT32_MAX, &request.count, reply) ||
        !parse_u64(words->word[3], SIZE_MAX, &request.bytes, reply))
        return false;
    for (size_t i = 0; i < sizeof leak_sites / sizeof *leak_sites; i++)
        if (!strcmp(leak_sites[i].name, request.name))
            return leak_sites[i].make(&request, reply);
    reply_add(reply, "no site %s", request.name);
    return false;
}

/* ---- frees, and what is left ---------------------------------------------- */

/* Frees the oldest `count`. Returns how many were freed. */
CALL_SITE static uint64_t free_tensors(struct tensors *tensors, uint64_t count, bool raw)
{
    uint64_t freed = 0;
    size_t taken = count < tensors->count ? count : tensors->count;
    for (size_t i = 0; i < taken; i++) {
        void *address = tensors->addresses[i];
        freed += (raw ? gp_torch_raw_free(address) : gp_torch_free(address)) == 0;
    }
    tensors->count -= taken;
    memmove(tensors->addresses, tensors->addresses + taken, tensors->count * sizeof(void *));
    return freed;
}

static bool run_tfree(struct words *words, struct reply *reply)
{
    struct tensors *tensors = find_tensors(words->word[1]);
    uint64_t count = UINT64_MAX;
    bool raw = false;
    const struct option options[] = { { NULL, OPTION_NUMBER, &count, UINT32_MAX },
                                      { "raw", OPTION_FLAG, &raw, 0 } };
    if (!parse_options(words, 2, options, 2, reply))
        return false;
    if (!tensors) {
        reply_add(reply, "no tensor %s", words->word[1]);
        return false;
    }
    reply_add(reply, "frees=%llu", (unsigned long long)free_tensors(tensors, count, raw));
    return true;
}

static bool run_tfreeall(struct words *words, struct reply *reply)
{
    uint64_t freed = 0;
    (void)words;
    for (struct tensors *tensors = all_tensors; tensors; tensors = tensors->next)
        freed += free_tensors(tensors, UINT64_MAX, false);
    reply_add(reply, "frees=%llu", (unsigned long long)freed);
    return true;
}

CALL_SITE static bool run_tempty(struct words *words, struct reply *reply)
{
    (void)words, (void)reply;
    gp_torch_empty_cache();
    return true;
}

static bool run_tstats(struct words *words, struct reply *reply)
{
    uint64_t device = 0;
    struct gp_torch_stats stats;
    if (words->count > 1 && !parse_u64(words->word[1], INT32_MAX, &device, reply))
        return false;
    gp_torch_stats((int)device, &stats);
    reply_add(
        reply,
        "allocated=%llu reserved=%llu requested=%llu mallocs=%llu frees=%llu out_of_memory=%llu",
        (unsigned long long)stats.allocated, (unsigned long long)stats.reserved,
        (unsigned long long)stats.requested, (unsigned long long)stats.mallocs,
        (unsigned long long)stats.frees, (unsigned long long)stats.out_of_memory);
    return true;
}

static bool run_tsnapshot(struct words *words, struct reply *reply)
{
    (void)words;
    reply->more = gp_torch_snapshot();
    return reply->more != NULL;
}

const struct command more_commands[] = {
    { "tmalloc", "tmalloc NAME SIZE [COUNT] [stream=N] [raw]", 2, 5, NEEDS_API, run_tmalloc },
    { "tleak", "tleak forward|backward|optimizer|loader COUNT SIZE", 3, 3, NEEDS_API, run_tleak },
    { "tfree", "tfree NAME [COUNT] [raw]", 1, 3, NEEDS_API, run_tfree },
    { "tfreeall", "tfreeall", 0, 0, NEEDS_API, run_tfreeall },
    { "tempty", "tempty", 0, 0, NEEDS_API, run_tempty },
    { "tstats", "tstats [DEVICE]", 0, 1, NEEDS_API, run_tstats },
    { "tsnapshot", "tsnapshot", 0, 0, NEEDS_API, run_tsnapshot },
    { "tchurn", "tchurn THREADS STEPS SEED", 3, 3, NEEDS_API, run_tchurn },
    { "tflood", "tflood THREADS PAIRS SIZE", 3, 3, NEEDS_API, run_tflood },
    { "trate", "trate RATE SECONDS SIZE", 3, 3, NEEDS_API, run_trate },
    { "ttold", "ttold", 0, 0, NEEDS_API, run_ttold },
    { "treport", "treport ADDRESS SIZE ALLOCATED RESERVED [type=N] [index=N] [COUNT]", 4, 7,
      NEEDS_API, run_treport },
    { "tgarbage", "tgarbage COUNT SEED", 2, 2, NEEDS_API, run_tgarbage },
    { "tregion", "tregion SIZE", 1, 1, NEEDS_API, run_tregion },
    { "tchunk", "tchunk MemoryAllocation|MemoryDeallocation ADDRESS SIZE", 3, 3, NEEDS_API,
      run_tchunk },
    { .name = NULL },
};
