/* One thread of the stressor. */
#ifndef STANDIN_STRESSOR_WORKER_H
#define STANDIN_STRESSOR_WORKER_H

#include <pthread.h>

#include "stressor.h"

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

/* The next planned call. */
void worker_call(struct worker *worker);

#endif
