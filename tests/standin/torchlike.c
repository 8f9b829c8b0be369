/*
 * The workload with commands for blocks of PyTorch's allocator, "tensors", which have names here;
 * `tsnapshot` replies with the whole truth. With LD_LIBRARY_PATH set to one of the folders c10_*
 * the hooks are those of that version of PyTorch.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cudart_abi.h"
#include "torch.h"
#include "workload_crew.h"
#include "workload_options.h"

/* All named tensors, the oldest first. */
static struct tensor {
    const char *name;
    void *address;
} * tensors;
static size_t tensor_count;

static void keep(const char *name, void *address)
{
    if (tensor_count % 4096 == 0)
        tensors = realloc(tensors, (tensor_count + 4096) * sizeof *tensors);
    tensors[tensor_count++] = (struct tensor){ name, address };
}

/* A word that is a number, perhaps a negative one. */
static uint64_t number(const struct words *words, int word)
{
    return strtoull(words->word[word], NULL, 0);
}

/* Replies with the first one's address. Inlined, so that the caller is the one seen on the stack.
 */
static inline __attribute__((always_inline)) bool make_tensors(const char *name, uint64_t count,
                                                               size_t bytes, uint64_t stream,
                                                               bool is_raw, struct reply *reply)
{
    name = strdup(name);
    for (uint64_t i = 0; i < count; i++) {
        void *address =
            is_raw ? gp_torch_raw_malloc(bytes, stream) : gp_torch_malloc(bytes, stream);
        if (!address) {
            reply_add(reply, "out of memory");
            return false;
        }
        if (i == 0)
            reply_add(reply, "%p", address);
        keep(name, address);
    }
    return true;
}

CALL_SITE static bool run_tmalloc(struct words *words, struct reply *reply)
{
    uint64_t count = 1, stream = 0;
    bool is_raw = false;
    const struct option options[] = { { NULL, OPTION_NUMBER, &count, UINT32_MAX },
                                      { "stream", OPTION_NUMBER, &stream, UINT64_MAX },
                                      { "raw", OPTION_FLAG, &is_raw, 0 } };
    return parse_options(words, 3, options, 3, reply) &&
           make_tensors(words->word[1], count, number(words, 2), stream, is_raw, reply);
}

#define LEAK_SITE(name)                                                                  \
    CALL_SITE static bool leak_##name(struct words *words, struct reply *reply)          \
    {                                                                                    \
        return make_tensors(#name, number(words, 2), number(words, 3), 0, false, reply); \
    }

LEAK_SITE(forward)
LEAK_SITE(backward)
LEAK_SITE(optimizer)
LEAK_SITE(loader)

static bool run_tleak(struct words *words, struct reply *reply)
{
    const char *name = words->word[1];
    return !strcmp(name, "forward")    ? leak_forward(words, reply)
           : !strcmp(name, "backward") ? leak_backward(words, reply)
           : !strcmp(name, "loader")   ? leak_loader(words, reply)
                                       : leak_optimizer(words, reply);
}

/* Frees the oldest of this name; of all if it is NULL. */
CALL_SITE static bool free_tensors(const char *name, uint64_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < tensor_count; i++) {
        if ((name && strcmp(tensors[i].name, name)) || !count)
            tensors[kept++] = tensors[i];
        else if (count--, gp_torch_free(tensors[i].address))
            return false;
    }
    tensor_count = kept;
    return true;
}

static bool run_tfree(struct words *words, struct reply *reply)
{
    (void)reply;
    return free_tensors(words->word[1], words->count > 2 ? number(words, 2) : UINT64_MAX);
}

static bool run_tfreeall(struct words *words, struct reply *reply)
{
    (void)words, (void)reply;
    return free_tensors(NULL, UINT64_MAX);
}

static bool run_tempty(struct words *words, struct reply *reply)
{
    (void)words, (void)reply;
    gp_torch_empty_cache();
    return true;
}

static bool run_tsnapshot(struct words *words, struct reply *reply)
{
    (void)words;
    reply->more = gp_torch_snapshot();
    return true;
}

/* ---- many calls ------------------------------------------------------------ */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* The threads have the devices in turn. */
static void run_members(uint64_t threads, struct member each)
{
    struct member crew[threads];
    int devices = 1;
    api.device_count(&devices);
    for (uint64_t i = 0; i < threads; i++) {
        crew[i] = each;
        crew[i].device = (int)(i % (uint64_t)devices);
        crew[i].number = (each.number + i) * 0x9e3779b97f4a7c15u | 1; /* not 0, a fixed point */
    }
    run_crew(crew, (unsigned int)threads);
}

/* The thread that takes an address from its slot frees it: mostly another one's tensor. */
static _Atomic(void *) churn_slots[512];

/* Random sizes from 1 byte to 64 MiB: each power of two is as likely. */
CALL_SITE static void churn_tensors(struct member *member)
{
    uint64_t state = member->number;
    api.set_device(member->device);
    for (uint64_t i = 0; i < member->count; i++) {
        void *made = NULL;
        uint64_t choice = next_random(&state), most = (uint64_t)1 << next_random(&state) % 27;
        if (choice % 4)
            made = gp_torch_malloc(most / 2 + next_random(&state) % most + 1, choice / 4 % 3);
        gp_torch_free(atomic_exchange(&churn_slots[choice / 64 % 512], made));
    }
}

/* The remaining tensors are called "churn". */
static bool run_tchurn(struct words *words, struct reply *reply)
{
    (void)reply;
    run_members(number(words, 1), (struct member){ .body = churn_tensors,
                                                   .count = number(words, 2),
                                                   .number = number(words, 3) });
    for (size_t i = 0; i < 512; i++) {
        void *address = atomic_exchange(&churn_slots[i], NULL);
        if (address)
            keep("churn", address);
    }
    return true;
}

CALL_SITE static void flood_tensors(struct member *member)
{
    api.set_device(member->device);
    for (uint64_t i = 0; i < member->count; i++)
        gp_torch_free(gp_torch_malloc(member->bytes, 0));
}

static bool run_tflood(struct words *words, struct reply *reply)
{
    (void)reply;
    run_members(number(words, 1), (struct member){ .body = flood_tensors,
                                                   .count = number(words, 2),
                                                   .bytes = number(words, 3) });
    return true;
}

/* RATE counts mallocs and frees. */
static bool run_trate(struct words *words, struct reply *reply)
{
    double rate = strtod(words->word[1], NULL), seconds = strtod(words->word[2], NULL);
    struct member batch = { .count = (uint64_t)(rate / 2000) + 1, .bytes = number(words, 3) };
    uint64_t start = now_ns(), pairs = 0;
    for (; (double)pairs < rate * seconds / 2; pairs += batch.count) {
        sleep_until_ns(start + (uint64_t)((double)pairs * 2e9 / rate));
        flood_tensors(&batch);
    }
    reply_add(reply, "mallocs=%lu frees=%lu seconds=%.3f", pairs, pairs,
              (double)(now_ns() - start) / 1e9);
    return true;
}

/* ---- calls of the hook that are not true ----------------------------------- */

static bool run_treport(struct words *words, struct reply *reply)
{
    struct c10_device device = { (int8_t)number(words, 5), (int8_t)number(words, 6) };
    (void)reply;
    standin_report_memory((void *)number(words, 1), (int64_t)number(words, 2), number(words, 3),
                          number(words, 4), device);
    return true;
}

/* Any number, and often a limit. */
static uint64_t random_word(uint64_t *state)
{
    static const uint64_t limits[] = { 0,         1,          511,        512,
                                       1u << 31,  UINT32_MAX, 1ull << 47, 1ull << 48,
                                       INT64_MAX, 1ull << 63, UINT64_MAX, -512ull };
    uint64_t choice = next_random(state), word = next_random(state);
    if (choice % 3 == 0)
        return limits[choice / 3 % (sizeof limits / sizeof *limits)];
    return word >> choice / 3 % 64;
}

static bool run_tgarbage(struct words *words, struct reply *reply)
{
    uint64_t state = number(words, 2) | 1;
    (void)reply;
    for (uint64_t count = number(words, 1); count; count--) {
        uint64_t word[5];
        for (int i = 0; i < 5; i++)
            word[i] = random_word(&state);
        standin_report_memory((void *)word[0], (int64_t)word[1], word[2], word[3],
                              (struct c10_device){ (int8_t)word[4], (int8_t)(word[4] >> 8) });
    }
    return true;
}

/* ---- TensorFlow's allocator: a region from CUDA, and chunks of it ----------- */

static bool run_tregion(struct words *words, struct reply *reply)
{
    void *address = NULL;
    int error = cudaMalloc(&address, number(words, 1));
    reply_add(reply, "%p", address);
    return !error;
}

/* The library is loaded at the first use, as Python loads it. */
CALL_SITE static bool run_tchunk(struct words *words, struct reply *reply)
{
    void *library = dlopen("libtensorflow_framework.so.2", RTLD_NOW);
    void (*add_trace_me)(void *allocator, size_t length, const char *name, const void *chunk,
                         long requested, long bytes);
    *(void **)&add_trace_me = library ? dlsym(library, "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic"
                                                       "_string_viewIcSt11char_traitsIcEEPKvll")
                                      : NULL;
    if (!add_trace_me) {
        reply_add(reply, "%s", dlerror());
        return false;
    }
    long bytes = (long)number(words, 3);
    add_trace_me(NULL, strlen(words->word[1]), words->word[1], (void *)number(words, 2), bytes,
                 bytes);
    return true;
}

const struct command more_commands[] = {
    { "tmalloc", "tmalloc NAME SIZE [COUNT] [stream=N] [raw]", 2, 5, NEEDS_API, run_tmalloc },
    { "tleak", "tleak forward|backward|optimizer|loader COUNT SIZE", 3, 3, NEEDS_API, run_tleak },
    { "tfree", "tfree NAME [COUNT]", 1, 2, NEEDS_API, run_tfree },
    { "tfreeall", "tfreeall", 0, 0, NEEDS_API, run_tfreeall },
    { "tempty", "tempty", 0, 0, NEEDS_API, run_tempty },
    { "tsnapshot", "tsnapshot", 0, 0, NEEDS_API, run_tsnapshot },
    { "tchurn", "tchurn THREADS STEPS SEED", 3, 3, NEEDS_API, run_tchurn },
    { "tflood", "tflood THREADS PAIRS SIZE", 3, 3, NEEDS_API, run_tflood },
    { "trate", "trate RATE SECONDS SIZE", 3, 3, NEEDS_API, run_trate },
    { "treport", "treport ADDRESS SIZE ALLOCATED RESERVED TYPE INDEX", 6, 6, NEEDS_API,
      run_treport },
    { "tgarbage", "tgarbage COUNT SEED", 2, 2, NEEDS_API, run_tgarbage },
    { "tregion", "tregion SIZE", 1, 1, NEEDS_API, run_tregion },
    { "tchunk", "tchunk MemoryAllocation|MemoryDeallocation ADDRESS SIZE", 3, 3, NEEDS_API,
      run_tchunk },
    { .name = NULL },
};
