/* Starts the threads of a command together and sums their counts. */
#define _GNU_SOURCE
#include "workload_crew.h"

#include <stdio.h>
#include <stdlib.h>

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
