/* Commands with many calls: on several threads (races, hand-overs, churn), at a steady rate, and to
 * learn the cost of a call. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "workload.h"

#define QUEUE_LENGTH 256

struct thread {
    pthread_t thread;
    pthread_barrier_t *start;
    struct member member;
};

static void *thread_main(void *argument)
{
    struct thread *thread = argument;
    if (api.enter_thread)
        api.enter_thread(); /* on failure the calls below fail and are counted */
    pthread_barrier_wait(thread->start);
    thread->member.body(&thread->member);
    return NULL;
}

struct tally run_crew(uint64_t threads, struct member each)
{
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned int)threads + 1);
    struct thread *crew = calloc(threads, sizeof *crew);
    for (uint64_t i = 0; i < threads; i++) {
        crew[i] = (struct thread){ .start = &start, .member = each };
        crew[i].member.number += i;
        if (pthread_create(&crew[i].thread, NULL, thread_main, &crew[i])) {
            perror("workload: pthread_create");
            abort();
        }
    }
    pthread_barrier_wait(&start);
    struct tally total = { 0 };
    for (uint64_t i = 0; i < threads; i++) {
        pthread_join(crew[i].thread, NULL);
        tally_add(&total, &crew[i].member.tally);
    }
    pthread_barrier_destroy(&start);
    free(crew);
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

static bool run_race(const struct args *args, struct reply *reply)
{
    struct member each = { .body = race_body, .count = args->number[1], .bytes = args->number[2] };
    struct tally total = run_crew(args->number[0], each);
    reply_tally(reply, &total);
    return true;
}

struct churn {
    uint64_t keep_every; /* 0: none */
    void **kept;         /* of the threads in turn, as many of each */
};

static uint64_t kept_of_each(const struct churn *churn, uint64_t count)
{
    return churn->keep_every ? count / churn->keep_every : 0;
}

CALL_SITE static void churn_body(struct member *member)
{
    const struct churn *churn = member->shared;
    void **kept = churn->kept + member->number * kept_of_each(churn, member->count);
    struct tally tally = { 0 };
    for (uint64_t i = 1; i <= member->count; i++) {
        void *address = tally_alloc(&tally, member->bytes);
        if (address && churn->keep_every && i % churn->keep_every == 0)
            *kept++ = address;
        else if (address)
            tally_free(&tally, address, member->bytes);
    }
    member->tally = tally;
}

static bool run_churn(const struct args *args, struct reply *reply)
{
    struct churn churn = { .keep_every = args->number[3] };
    struct member each = {
        .body = churn_body, .count = args->number[1], .bytes = args->number[2], .shared = &churn
    };
    uint64_t kept = args->number[0] * kept_of_each(&churn, each.count);
    churn.kept = calloc(kept + 1, sizeof(void *));
    struct tally total = run_crew(args->number[0], each);
    for (uint64_t i = 0; i < kept; i++)
        if (churn.kept[i])
            block_add(churn.kept[i], each.bytes);
    free(churn.kept);
    reply_tally(reply, &total);
    reply_add(reply, " live=%ld bytes=%ld", total.gpu.live, total.gpu.bytes);
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

/* One thread allocates, the other frees. Failed allocations are passed on too, as NULL, to keep the
 * counts equal. */
CALL_SITE static void crossfree_body(struct member *member)
{
    pthread_setname_np(pthread_self(), member->number ? "freeing" : "allocating");
    for (uint64_t i = 0; i < member->count; i++) {
        if (!member->number) {
            queue_put(member->shared, tally_alloc(&member->tally, member->bytes));
            continue;
        }
        void *address = queue_take(member->shared);
        if (address)
            tally_free(&member->tally, address, member->bytes);
    }
}

static bool run_crossfree(const struct args *args, struct reply *reply)
{
    struct queue queue = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    struct member each = {
        .body = crossfree_body, .count = args->number[0], .bytes = args->number[1], .shared = &queue
    };
    struct tally total = run_crew(2, each);
    reply_tally(reply, &total);
    return true;
}

/* ---- at a steady rate -------------------------------------------------- */

struct pace {
    double rate, seconds; /* allocations a second of each thread (0: as many as go) */
    double freed;         /* the part of all allocations that is freed at once */
    uint64_t start;
};

#define FREE_RUNNING_BATCH 1024 /* without a rate: allocations between two looks at the clock */

/* Each allocation, and its free if one is due. What is kept has no slot. */
CALL_SITE static void pace_batch(struct tally *tally, uint64_t count, size_t bytes, double freed)
{
    for (uint64_t i = 0; i < count; i++) {
        void *address = tally_alloc(tally, bytes);
        if (address && (uint64_t)((double)tally->allocs * freed) > tally->frees)
            tally_free(tally, address, bytes);
    }
}

/* Keeps to absolute times, so that a late batch does not delay the next: one a millisecond. */
static void pace_body(struct member *member)
{
    const struct pace *pace = member->shared;
    uint64_t end = pace->start + (uint64_t)(pace->seconds * 1e9), batch = FREE_RUNNING_BATCH;
    uint64_t limit = UINT64_MAX, done = 0;
    struct tally tally = { 0 };
    if (pace->rate > 0) {
        limit = (uint64_t)(pace->rate * pace->seconds + 0.5);
        batch = pace->rate >= 2000 ? (uint64_t)(pace->rate / 1000) : 1;
    }
    for (; done < limit && (pace->rate > 0 || now_ns() < end); done += batch) {
        if (pace->rate > 0)
            sleep_until_ns(pace->start + (uint64_t)((double)done * 1e9 / pace->rate));
        pace_batch(&tally, limit - done < batch ? limit - done : batch, member->bytes, pace->freed);
    }
    sleep_until_ns(end); /* the last batch gets its share of the time too */
    member->tally = tally;
}

static bool run_pace(const struct args *args, struct reply *reply)
{
    struct pace pace = { .freed = 1, .start = now_ns() };
    uint64_t threads = args->text[3] ? args->number[3] : 1;
    if (!parse_double(args->text[0], 1e9, &pace.rate, reply) ||
        !parse_double(args->text[1], 86400, &pace.seconds, reply) ||
        (args->text[4] && !parse_double(args->text[4], 1, &pace.freed, reply)))
        return false;
    pace.rate /= (double)threads * (1 + pace.freed);
    struct member each = { .body = pace_body, .bytes = args->number[2], .shared = &pace };
    struct tally total;
    if (threads == 1) {
        pace_body(&each);
        truth_add(&each.tally);
        total = each.tally;
    } else {
        total = run_crew(threads, each);
    }
    double elapsed = (double)(now_ns() - pace.start) / 1e9;
    reply_tally(reply, &total);
    reply_add(reply, " live=%ld bytes=%ld rate=%.0f seconds=%.3f", total.gpu.live, total.gpu.bytes,
              elapsed > 0 ? (double)(total.allocs + total.frees) / elapsed : 0, elapsed);
    return true;
}

static void make_async_pairs(struct tally *tally, uint64_t pairs, size_t bytes)
{
    void *address;
    for (uint64_t i = 0; i < pairs; i++)
        if (tally_result(tally, api.async_alloc(&address, bytes, NULL))) {
            tally->allocs++;
            tally->frees += tally_result(tally, api.async_free(address, NULL));
        }
}

CALL_SITE static bool run_timepairs(const struct args *args, struct reply *reply)
{
    struct tally tally = { 0 };
    uint64_t start = now_ns();
    (args->number[2] ? make_async_pairs : make_pairs)(&tally, args->number[0], args->number[1]);
    reply_add(reply, "pairs=%lu ns=%lu", args->number[0], now_ns() - start);
    return reply_done(reply, &tally);
}

const struct command stress_commands[] = {
    { "race THREADS PAIRS SIZE", NEEDS_API, run_race },
    { "crossfree CALLS SIZE", NEEDS_API, run_crossfree },
    { "churn THREADS ALLOCS SIZE KEEP_EVERY", NEEDS_API, run_churn },
    { "pace <rate> <seconds> SIZE [threads=N] [freed=]", NEEDS_API, run_pace },
    { "timepairs PAIRS SIZE [async]", NEEDS_API, run_timepairs },
    { .usage = NULL },
};
