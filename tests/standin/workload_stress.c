/* Commands with many calls: on several threads (races, hand-overs, churn), at a steady rate, and to
 * learn the cost of a call. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "workload_crew.h"

#define QUEUE_LENGTH 256

static void *member_main(void *argument)
{
    struct member *member = argument;
    if (api.enter_thread)
        api.enter_thread(); /* on failure the calls below fail and are counted */
    pthread_barrier_wait(member->start);
    member->body(member);
    return NULL;
}

struct tally run_crew(struct member *crew, unsigned int size)
{
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, size);
    for (unsigned int i = 0; i < size; i++) {
        crew[i].start = &start;
        if (pthread_create(&crew[i].thread, NULL, member_main, &crew[i])) {
            perror("workload: pthread_create");
            abort();
        }
    }
    struct tally total = { 0 };
    for (unsigned int i = 0; i < size; i++) {
        pthread_join(crew[i].thread, NULL);
        tally_add(&total, &crew[i].tally);
    }
    pthread_barrier_destroy(&start);
    truth_add(&total);
    return total;
}

/* A block whose free fails has no slot: only an injected failure of the free itself does that. */
static inline __attribute__((always_inline)) void make_pairs(struct tally *tally, uint64_t pairs,
                                                             size_t bytes)
{
    for (uint64_t i = 0; i < pairs; i++) {
        void *address = tally_alloc(tally, bytes);
        if (address)
            tally_free(tally, address, bytes);
    }
}

/* Tallies are kept on the thread's own stack while it runs: those of two
 * members share a cache line. */
CALL_SITE static void race_body(struct member *member)
{
    struct tally tally = { 0 };
    make_pairs(&tally, member->count, member->bytes);
    member->tally = tally;
}

static bool run_race(struct words *words, struct reply *reply)
{
    uint64_t threads, pairs, bytes;
    if (!parse_u64(words->word[1], MAX_THREADS, &threads, reply) ||
        !parse_u64(words->word[2], MAX_CALLS, &pairs, reply) ||
        !parse_u64(words->word[3], SIZE_MAX, &bytes, reply))
        return false;
    if (threads == 0) {
        reply_add(reply, "no threads");
        return false;
    }
    struct member *crew = calloc(threads, sizeof *crew);
    for (uint64_t i = 0; i < threads; i++)
        crew[i] = (struct member){ .body = race_body, .count = pairs, .bytes = bytes };
    struct tally total = run_crew(crew, (unsigned int)threads);
    free(crew);
    reply_tally(reply, &total);
    return true;
}

CALL_SITE static void churn_body(struct member *member)
{
    struct tally tally = { 0 };
    for (uint64_t i = 1; i <= member->count; i++) {
        void *address = tally_alloc(&tally, member->bytes);
        if (!address)
            continue;
        if (member->keep_every && i % member->keep_every == 0)
            member->kept[member->kept_count++] = address;
        else
            tally_free(&tally, address, member->bytes);
    }
    member->tally = tally;
}

static bool run_churn(struct words *words, struct reply *reply)
{
    uint64_t threads, allocs, bytes, keep_every;
    if (!parse_u64(words->word[1], MAX_THREADS, &threads, reply) ||
        !parse_u64(words->word[2], UINT32_MAX, &allocs, reply) ||
        !parse_u64(words->word[3], SIZE_MAX, &bytes, reply) ||
        !parse_u64(words->word[4], UINT32_MAX, &keep_every, reply))
        return false;
    if (threads == 0) {
        reply_add(reply, "no threads");
        return false;
    }
    struct member *crew = calloc(threads, sizeof *crew);
    for (uint64_t i = 0; i < threads; i++) {
        crew[i] = (struct member){
            .body = churn_body, .count = allocs, .bytes = bytes, .keep_every = keep_every
        };
        crew[i].kept = calloc(keep_every ? allocs / keep_every + 1 : 1, sizeof(void *));
    }
    struct tally total = run_crew(crew, (unsigned int)threads);
    for (uint64_t i = 0; i < threads; i++) {
        for (size_t k = 0; k < crew[i].kept_count; k++)
            slot_add(crew[i].kept[k], bytes);
        free(crew[i].kept);
    }
    free(crew);
    reply_tally(reply, &total);
    reply_add(reply, " live=%ld bytes=%ld", total.live, total.bytes);
    return true;
}

/* Bounded, so that the freeing thread works while the other still allocates. */
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *items[QUEUE_LENGTH];
    size_t head, length;
};

static void queue_put(struct queue *queue, void *item)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->length == QUEUE_LENGTH)
        pthread_cond_wait(&queue->changed, &queue->lock);
    queue->items[(queue->head + queue->length++) % QUEUE_LENGTH] = item;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

static void *queue_take(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->length == 0)
        pthread_cond_wait(&queue->changed, &queue->lock);
    void *item = queue->items[queue->head];
    queue->head = (queue->head + 1) % QUEUE_LENGTH;
    queue->length--;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return item;
}

/* Failed allocations are passed on too, as NULL, to keep the counts equal. */
CALL_SITE static void crossfree_allocating(struct member *member)
{
    pthread_setname_np(pthread_self(), "allocating");
    for (uint64_t i = 0; i < member->count; i++)
        queue_put(member->queue, tally_alloc(&member->tally, member->bytes));
}

CALL_SITE static void crossfree_freeing(struct member *member)
{
    pthread_setname_np(pthread_self(), "freeing");
    for (uint64_t i = 0; i < member->count; i++) {
        void *address = queue_take(member->queue);
        if (address)
            tally_free(&member->tally, address, member->bytes);
    }
}

static bool run_crossfree(struct words *words, struct reply *reply)
{
    uint64_t count, bytes;
    if (!parse_u64(words->word[1], MAX_CALLS, &count, reply) ||
        !parse_u64(words->word[2], SIZE_MAX, &bytes, reply))
        return false;
    struct queue queue = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    struct member crew[2] = {
        { .body = crossfree_allocating, .count = count, .bytes = bytes, .queue = &queue },
        { .body = crossfree_freeing, .count = count, .bytes = bytes, .queue = &queue },
    };
    struct tally total = run_crew(crew, 2);
    reply_tally(reply, &total);
    return true;
}

CALL_SITE static void pace_batch(struct tally *tally, uint64_t pairs, size_t bytes)
{
    make_pairs(tally, pairs, bytes);
}

/* Keeps to absolute times, so that a late batch does not delay the next. */
static bool run_pace(struct words *words, struct reply *reply)
{
    uint64_t rate, bytes;
    double seconds;
    if (!parse_u64(words->word[1], 1000000000, &rate, reply) ||
        !parse_double(words->word[2], 86400, &seconds, reply) ||
        !parse_u64(words->word[3], SIZE_MAX, &bytes, reply))
        return false;
    struct tally tally = { 0 };
    uint64_t pairs = (uint64_t)((double)rate * seconds / 2 + 0.5);
    uint64_t batch = rate / 2000 ? rate / 2000 : 1; /* a millisecond's worth */
    uint64_t start = now_ns();
    for (uint64_t done = 0; done < pairs; done += batch) {
        sleep_until_ns(start + (uint64_t)((double)done * 2e9 / (double)rate));
        pace_batch(&tally, pairs - done < batch ? pairs - done : batch, bytes);
    }
    /* The last batch gets its share of the time too. */
    sleep_until_ns(start + (uint64_t)(seconds * 1e9));
    double elapsed = (double)(now_ns() - start) / 1e9;
    truth_add(&tally);
    reply_tally(reply, &tally);
    reply_add(reply, " rate=%.0f seconds=%.3f",
              elapsed > 0 ? (double)(tally.allocs + tally.frees) / elapsed : 0, elapsed);
    return true;
}

CALL_SITE static bool run_timepairs(struct words *words, struct reply *reply)
{
    uint64_t pairs, bytes;
    if (!parse_u64(words->word[1], MAX_CALLS, &pairs, reply) ||
        !parse_u64(words->word[2], SIZE_MAX, &bytes, reply))
        return false;
    struct tally tally = { 0 };
    uint64_t start = now_ns();
    make_pairs(&tally, pairs, bytes);
    uint64_t elapsed = now_ns() - start;
    truth_add(&tally);
    reply_add(reply, "pairs=%lu ns=%lu", pairs, elapsed);
    if (tally.failed)
        reply_add(reply, " failed=%lu", tally.failed);
    return true;
}

const struct command stress_commands[] = {
    { "race", "race THREADS PAIRS SIZE", 3, 3, NEEDS_API, run_race },
    { "crossfree", "crossfree COUNT SIZE", 2, 2, NEEDS_API, run_crossfree },
    { "churn", "churn THREADS ALLOCS SIZE KEEP_EVERY", 4, 4, NEEDS_API, run_churn },
    { "pace", "pace RATE SECONDS SIZE", 3, 3, NEEDS_API, run_pace },
    { "timepairs", "timepairs PAIRS SIZE", 2, 2, NEEDS_API, run_timepairs },
    { .name = NULL },
};
