/* Threads that do the same thing at the same time. */
#ifndef STANDIN_WORKLOAD_CREW_H
#define STANDIN_WORKLOAD_CREW_H

#include <pthread.h>

#include "workload.h"

#define MAX_THREADS 1024

/* One thread of a command. The array `kept` holds `kept_count` addresses. */
struct member {
    pthread_t thread;
    pthread_barrier_t *start;
    void (*body)(struct member *member);
    uint64_t number, count;
    int device;
    size_t bytes;
    uint64_t keep_every;
    struct queue *queue;
    void **kept;
    size_t kept_count;
    struct storm *storm;
    struct tally tally;
};

/* Runs all members at once, waits for them, and sums their counts. */
struct tally run_crew(struct member *crew, unsigned int size);

#endif
