/* What the files of the stressor share: options and results. */
#ifndef STANDIN_STRESSOR_H
#define STANDIN_STRESSOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define MAX_PROCS 1024
#define MAX_THREADS 1024
#define MAX_THROUGHPUT 1000000000.0
#define NO_ANOMALY 0

/* Options: rates and numbers of calls are of all threads together. */
struct plan {
    double throughput; /* calls a second; 0: unlimited */
    double free_ratio;
    double duration; /* seconds; 0: no limit */
    uint64_t calls;  /* 0: no limit */
    uint64_t allocate_size;
    uint64_t seed;
    uint64_t procs, threads;
    uint64_t anomaly_bytes; /* NO_ANOMALY: none */
    uint64_t anomaly_thread, anomaly_iter;
    bool wait;
};

/* Reads the command line, or ends the program. */
struct plan plan_of(int argc, char **argv);

enum ending { ENDED_DONE, ENDED_DURATION, ENDED_SIGNAL };

/* Results of one thread. */
struct account {
    pid_t tid;
    char name[16];
    uint64_t allocs, alloc_bytes, frees, freed_bytes, failed;
    uint64_t anomaly_bytes; /* of the block that it kept, if there was one */
    double seconds;
    enum ending ending;
};

/* Results of one process: shared with the process that prints them. */
struct process {
    pid_t pid;
    bool complete;
    struct account threads[];
};

static inline size_t process_size(const struct plan *plan)
{
    return sizeof(struct process) + plan->threads * sizeof(struct account);
}

static inline struct process *process_at(void *all, const struct plan *plan, uint64_t number)
{
    return (struct process *)((char *)all + number * process_size(plan));
}

/* Runs the part of process `number` on its threads, until it is done or until `stopped` is not 0,
 * and fills in `process`. */
void process_work(const struct plan *plan, uint64_t number, struct process *process);
extern atomic_int stopped; /* the signal */

/* The last line: one object of JSON. `signal` is 0 if none ended the run. */
void statement_print(FILE *out, const struct plan *plan, void *all, int signal);

#endif
