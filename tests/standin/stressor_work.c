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
#include "stressor_worker.h"

#define BATCHES_A_SECOND 1000
#define FREE_RUNNING_BATCH 1024 /* without a rate: calls between two clock reads */
#define SLICE_NS 50000000       /* latency of a stop by signal */

atomic_int stopped;

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
