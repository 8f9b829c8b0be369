/* Commands of torchlike with many calls, and with calls that no allocator makes. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "c10_abi.h"
#include "torch_api.h"
#include "torchlike.h"
#include "workload_crew.h"
#include "workload_options.h"

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Never 0, which is a fixed point of xorshift. */
static uint64_t random_from(uint64_t seed)
{
    return seed * 0x9e3779b97f4a7c15u | 1;
}

/* Counts of a command's threads: they make no CUDA calls of the program's own, so they are in no
 * tally. */
static struct {
    _Atomic uint64_t mallocs, frees, failed;
} counts;

static void count_malloc(const void *address)
{
    atomic_fetch_add(address ? &counts.mallocs : &counts.failed, 1);
}

static void count_free(int error)
{
    atomic_fetch_add(error ? &counts.failed : &counts.frees, 1);
}

static void reply_counts(struct reply *reply)
{
    reply_add(reply, "mallocs=%llu frees=%llu failed=%llu", (unsigned long long)counts.mallocs,
              (unsigned long long)counts.frees, (unsigned long long)counts.failed);
    counts.mallocs = counts.frees = counts.failed = 0;
}

/* The threads are assigned to devices in turn. */
static bool run_members(void (*body)(struct member *), uint64_t threads, struct member each,
                        struct reply *reply)
{
    int devices;
    if (threads == 0 || api.device_count(&devices) || devices == 0) {
        reply_add(reply, "no threads or no devices");
        return false;
    }
    struct member *crew = calloc(threads, sizeof *crew);
    for (uint64_t i = 0; i < threads; i++) {
        crew[i] = each;
        crew[i].body = body;
        crew[i].device = (int)(i % (uint64_t)devices);
        crew[i].number = random_from(each.number + i);
    }
    run_crew(crew, (unsigned int)threads);
    free(crew);
    reply_counts(reply);
    return true;
}

/* ---- many tensors of random sizes ----------------------------------------- */

#define CHURN_SLOTS 512
#define CHURN_STREAMS 3

/* The thread that takes an address from its slot frees it, so most frees are of another thread's
 * tensor. */
static _Atomic(void *) churn_slots[CHURN_SLOTS];

/* From 1 byte to 64 MiB: each power of two is as likely. */
static size_t random_bytes(uint64_t *state)
{
    uint64_t most = (uint64_t)1 << next_random(state) % 27;
    return most / 2 + next_random(state) % most + 1;
}

CALL_SITE static void churn_tensors(struct member *member)
{
    uint64_t state = member->number;
    api.set_device(member->device);
    for (uint64_t i = 0; i < member->count; i++) {
        void *made = NULL;
        uint64_t choice = next_random(&state);
        if (choice % 4) {
            made = gp_torch_malloc(random_bytes(&state), choice / 4 % CHURN_STREAMS);
            count_malloc(made);
        }
        void *old = atomic_exchange(&churn_slots[choice / 64 % CHURN_SLOTS], made);
        if (old)
            count_free(gp_torch_free(old));
    }
}

/* The remaining slots at the end are live, and called "churn". */
bool run_tchurn(struct words *words, struct reply *reply)
{
    uint64_t threads, steps, seed;
    if (!parse_u64(words->word[1], MAX_THREADS, &threads, reply) ||
        !parse_u64(words->word[2], MAX_CALLS, &steps, reply) ||
        !parse_u64(words->word[3], UINT64_MAX, &seed, reply) ||
        !run_members(churn_tensors, threads, (struct member){ .count = steps, .number = seed },
                     reply))
        return false;
    for (size_t i = 0; i < CHURN_SLOTS; i++) {
        void *address = atomic_exchange(&churn_slots[i], NULL);
        if (address)
            tensor_keep("churn", address);
    }
    return true;
}

/* ---- many pairs ------------------------------------------------------------ */

static inline __attribute__((always_inline)) void make_tensor_pairs(uint64_t pairs, size_t bytes)
{
    for (uint64_t i = 0; i < pairs; i++) {
        void *address = gp_torch_malloc(bytes, 0);
        count_malloc(address);
        if (address)
            count_free(gp_torch_free(address));
    }
}

CALL_SITE static void flood_tensors(struct member *member)
{
    api.set_device(member->device);
    make_tensor_pairs(member->count, member->bytes);
}

bool run_tflood(struct words *words, struct reply *reply)
{
    uint64_t threads, pairs, bytes;
    if (!parse_u64(words->word[1], MAX_THREADS, &threads, reply) ||
        !parse_u64(words->word[2], MAX_CALLS, &pairs, reply) ||
        !parse_u64(words->word[3], SIZE_MAX, &bytes, reply))
        return false;
    uint64_t start = now_ns();
    if (!run_members(flood_tensors, threads, (struct member){ .count = pairs, .bytes = bytes },
                     reply))
        return false;
    reply_add(reply, " ns=%llu", (unsigned long long)(now_ns() - start));
    return true;
}

CALL_SITE static void rate_batch(uint64_t pairs, size_t bytes)
{
    make_tensor_pairs(pairs, bytes);
}

/* As `pace`: RATE counts mallocs and frees. */
bool run_trate(struct words *words, struct reply *reply)
{
    uint64_t rate, bytes;
    double seconds;
    if (!parse_u64(words->word[1], 1000000000, &rate, reply) ||
        !parse_double(words->word[2], 86400, &seconds, reply) ||
        !parse_u64(words->word[3], SIZE_MAX, &bytes, reply))
        return false;
    uint64_t pairs = (uint64_t)((double)rate * seconds / 2 + 0.5);
    uint64_t batch = rate / 2000 ? rate / 2000 : 1; /* a millisecond's worth */
    uint64_t start = now_ns();
    for (uint64_t done = 0; done < pairs; done += batch) {
        sleep_until_ns(start + (uint64_t)((double)done * 2e9 / (double)rate));
        rate_batch(pairs - done < batch ? pairs - done : batch, bytes);
    }
    double elapsed = (double)(now_ns() - start) / 1e9;
    reply_counts(reply);
    reply_add(reply, " seconds=%.3f", elapsed);
    return true;
}

/* ---- reports that are not true --------------------------------------------- */

/* The program may run with a libc10 of another version, which lacks it. */
#pragma weak c10_report_memory

static bool parse_i64(const char *word, int64_t *value, struct reply *reply)
{
    char *end;
    errno = 0;
    *value = strtoll(word, &end, 0);
    if (end != word && !*end && !errno)
        return true;
    reply_add(reply, "%s: expected a number of 64 bits", word);
    return false;
}

static bool can_report(struct reply *reply)
{
    if (c10_report_memory)
        return true;
    reply_add(reply, "this libc10 has no %s", C10_REPORT_MEMORY);
    return false;
}

CALL_SITE static void report_lies(uint64_t count, void *address, int64_t bytes,
                                  const uint64_t sums[2], struct c10_device device)
{
    for (uint64_t i = 0; i < count; i++)
        c10_report_memory(address, bytes, sums[0], sums[1], device);
}

bool run_ttold(struct words *words, struct reply *reply)
{
    struct c10_told told;
    (void)words;
    standin_c10_told(&told);
    reply_add(reply, "calls=%llu bytes=%lld allocated=%llu reserved=%llu out_of_memory=%llu",
              (unsigned long long)told.calls, (long long)told.bytes,
              (unsigned long long)told.allocated, (unsigned long long)told.reserved,
              (unsigned long long)told.out_of_memory);
    return true;
}

bool run_treport(struct words *words, struct reply *reply)
{
    int64_t bytes;
    uint64_t address, sums[2], type = C10_CUDA, index = 0, count = 1;
    const struct option options[] = { { NULL, OPTION_NUMBER, &count, MAX_CALLS },
                                      { "type", OPTION_NUMBER, &type, UINT8_MAX },
                                      { "index", OPTION_NUMBER, &index, UINT8_MAX } };
    if (!can_report(reply) || !parse_u64(words->word[1], UINT64_MAX, &address, reply) ||
        !parse_i64(words->word[2], &bytes, reply) ||
        !parse_u64(words->word[3], UINT64_MAX, &sums[0], reply) ||
        !parse_u64(words->word[4], UINT64_MAX, &sums[1], reply) ||
        !parse_options(words, 5, options, 3, reply))
        return false;
    report_lies(count, (void *)address, bytes, sums,
                (struct c10_device){ (int8_t)type, (int8_t)index });
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

bool run_tgarbage(struct words *words, struct reply *reply)
{
    uint64_t count, seed;
    if (!can_report(reply) || !parse_u64(words->word[1], MAX_CALLS, &count, reply) ||
        !parse_u64(words->word[2], UINT64_MAX, &seed, reply))
        return false;
    uint64_t state = random_from(seed);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t address = random_word(&state), device = random_word(&state);
        int64_t bytes = (int64_t)random_word(&state);
        uint64_t sums[] = { random_word(&state), random_word(&state) };
        report_lies(1, (void *)address, bytes, sums,
                    (struct c10_device){ (int8_t)device, (int8_t)(device >> 8) });
    }
    return true;
}
