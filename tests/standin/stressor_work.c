/*
 * The calls of the stressor's threads. Each keeps to a schedule of its own that
 * is absolute: call n is due at the start plus n / rate, so that what is late does
 * not delay the rest. A thread sleeps about once a millisecond and then makes all
 * calls that are due: sleeping costs far more than a call.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda_clock.h"
#include "cudart_abi.h"
#include "stressor.h"

#define BATCHES_A_SECOND 1000
#define FREE_RUNNING_BATCH 1024 /* without a rate: calls between two clock reads */
#define SLICE_NS 50000000       /* latency of a stop by signal */

atomic_int stopped;

/* Nothing of it shares a cache line with another's: the account changes with each call. */
struct worker {
    const struct plan *plan;
    struct account *shared; /* destination of the counts at the end */
    struct account account; /* on a cache line of its own meanwhile */
    pthread_t thread;
    pthread_barrier_t *start;
    void **live; /* blocks that may still be freed */
    uint64_t live_count, live_room;
    uint64_t limit; /* calls; UINT64_MAX: no limit */
    double rate;    /* calls a second; 0: none */
    uint64_t random;
    bool has_anomaly;
} __attribute__((aligned(64)));

/* ---- the next CUDA call, and the counts --------------------------------- */

/* xorshift64*: the same numbers from the same seed, everywhere. */
static uint64_t random_below(struct worker *worker, uint64_t limit)
{
    worker->random ^= worker->random >> 12;
    worker->random ^= worker->random << 25;
    worker->random ^= worker->random >> 27;
    uint64_t high = (worker->random * 0x2545f4914f6cdd1dull) >> 32;
    return (high * limit) >> 32; /* there are never 2^32 blocks */
}

static void keep(struct worker *worker, void *address)
{
    if (worker->live_count == worker->live_room) {
        worker->live_room = worker->live_room ? 2 * worker->live_room : 1024;
        worker->live = realloc(worker->live, worker->live_room * sizeof *worker->live);
        if (!worker->live) {
            perror("stressor: blocks");
            abort();
        }
    }
    worker->live[worker->live_count++] = address;
}

/* A tracer's stacks show these three, which call CUDA. */
static __attribute__((noinline)) void *stress_allocate(struct worker *worker, uint64_t bytes)
{
    void *address = NULL;
    if (cudaMalloc(&address, bytes)) {
        worker->account.failed++;
        return NULL;
    }
    worker->account.allocs++;
    worker->account.alloc_bytes += bytes;
    return address;
}

static __attribute__((noinline)) void stress_free(struct worker *worker)
{
    uint64_t index = random_below(worker, worker->live_count);
    void *address = worker->live[index];
    worker->live[index] = worker->live[--worker->live_count];
    if (cudaFree(address)) {
        fputs("stressor: cudaFree failed\n", stderr);
        abort();
    }
    worker->account.frees++;
    worker->account.freed_bytes += worker->plan->allocate_size;
}

static __attribute__((noinline)) void stress_anomaly(struct worker *worker)
{
    if (stress_allocate(worker, worker->plan->anomaly_bytes))
        worker->account.anomaly_bytes = worker->plan->anomaly_bytes;
    worker->has_anomaly = false;
}

/* Whether this many allocations require another free. The kept one does not count. */
static bool is_free_due(const struct worker *worker)
{
    uint64_t allocs = worker->account.allocs - (worker->account.anomaly_bytes ? 1 : 0);
    return (uint64_t)((double)allocs * worker->plan->free_ratio) > worker->account.frees;
}

static void worker_call(struct worker *worker)
{
    if (worker->has_anomaly && worker->account.allocs >= worker->plan->anomaly_iter) {
        stress_anomaly(worker);
    } else if (is_free_due(worker)) {
        stress_free(worker);
    } else {
        void *address = stress_allocate(worker, worker->plan->allocate_size);
        if (address && worker->plan->free_ratio > 0)
            keep(worker, address);
    }
}

/* ---- the schedule ------------------------------------------------------- */

static void sleep_until(uint64_t time_ns)
{
    for (uint64_t now = now_ns(); now < time_ns && !stopped; now = now_ns()) {
        uint64_t next = time_ns - now > SLICE_NS ? now + SLICE_NS : time_ns;
        struct timespec when = { (time_t)(next / 1000000000), (long)(next % 1000000000) };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
    }
}

static uint64_t due_ns(const struct worker *worker, uint64_t start, uint64_t call)
{
    return worker->rate > 0 ? start + (uint64_t)((double)call * 1e9 / worker->rate) : start;
}

static enum ending make_calls(struct worker *worker, uint64_t start)
{
    uint64_t end = UINT64_MAX, limit = worker->limit, done = 0;
    uint64_t batch =
        worker->rate > 0 ? (uint64_t)(worker->rate / BATCHES_A_SECOND) : FREE_RUNNING_BATCH;
    if (worker->plan->duration > 0) {
        end = start + (uint64_t)(worker->plan->duration * 1e9);
        double most = ceil(worker->rate * worker->plan->duration);
        if (worker->rate > 0 && most < (double)limit)
            limit = (uint64_t)most;
    }
    batch = batch ? batch : 1;
    while (done < limit && !stopped && now_ns() < end) {
        uint64_t due = due_ns(worker, start, done);
        sleep_until(due < end ? due : end);
        for (uint64_t i = 0; i < batch && done < limit && !stopped; i++, done++)
            worker_call(worker);
    }
    /* The last calls get their share of the time too. */
    uint64_t over = due_ns(worker, start, done);
    sleep_until(over < end ? over : end);
    if (stopped)
        return ENDED_SIGNAL;
    return done == worker->limit ? ENDED_DONE : ENDED_DURATION;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    worker->account.tid = gettid();
    pthread_setname_np(pthread_self(), worker->account.name);
    pthread_barrier_wait(worker->start);
    uint64_t start = now_ns();
    worker->account.ending = make_calls(worker, start);
    worker->account.seconds = (double)(now_ns() - start) / 1e9;
    *worker->shared = worker->account;
    return NULL;
}

static void prepare(struct worker *worker, const struct plan *plan, uint64_t number, uint64_t index)
{
    uint64_t all = plan->procs * plan->threads, position = number * plan->threads + index;
    worker->plan = plan;
    worker->rate = plan->throughput / (double)all;
    worker->limit = UINT64_MAX;
    if (plan->calls)
        worker->limit = plan->calls / all + (position < plan->calls % all);
    /* Never 0, and distant from the next thread's. */
    worker->random = (plan->seed * all + position + 1) * 0x9e3779b97f4a7c15ull | 1;
    worker->has_anomaly =
        plan->anomaly_bytes != NO_ANOMALY && number == 0 && index == plan->anomaly_thread;
    snprintf(worker->account.name, sizeof worker->account.name, "worker_%u", (unsigned int)index);
}

void process_work(const struct plan *plan, uint64_t number, struct process *process)
{
    pthread_barrier_t start;
    struct worker *workers = aligned_alloc(64, plan->threads * sizeof *workers);
    if (!workers) {
        perror("stressor: threads");
        abort();
    }
    memset(workers, 0, plan->threads * sizeof *workers);
    pthread_barrier_init(&start, NULL, (unsigned int)plan->threads);
    for (uint64_t i = 0; i < plan->threads; i++) {
        prepare(&workers[i], plan, number, i);
        workers[i].start = &start;
        workers[i].shared = &process->threads[i];
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i])) {
            perror("stressor: pthread_create");
            abort();
        }
    }
    for (uint64_t i = 0; i < plan->threads; i++)
        pthread_join(workers[i].thread, NULL);
    process->pid = getpid();
    process->complete = true;
}
