/* The next CUDA call, and the counts. */
#include <stdlib.h>

#include "cudart_abi.h"
#include "stressor_worker.h"

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

void worker_call(struct worker *worker)
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
