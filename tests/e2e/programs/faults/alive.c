/*
 * Threads or processes that are alive at once: `alive threads|processes COUNT CALLS`.
 * Each makes so many allocations, one after the other, and waits for the rest; then
 * COUNT more do, when the first have ended.
 */
#define _GNU_SOURCE
#include "hooked.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int calls;
static pthread_barrier_t all_called;

static void call(void)
{
    void *address;
    for (int i = 0; i < calls; i++)
        cudaMalloc(&address, 512);
}

static void *thread_main(void *unused)
{
    call();
    pthread_barrier_wait(&all_called);
    return unused;
}

static void threads(int count)
{
    pthread_t *all = calloc((size_t)count, sizeof *all);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&all_called, NULL, (unsigned int)count);
    for (int i = 0; i < count; i++)
        if (pthread_create(&all[i], &small, thread_main, NULL))
            abort();
    for (int i = 0; i < count; i++)
        pthread_join(all[i], NULL);
    free(all);
}

/* They exit when the pipe is closed. */
static void processes(int count)
{
    int gate[2], called[2];
    char byte = 0;
    if (pipe(gate) || pipe(called))
        abort();
    for (int i = 0; i < count; i++) {
        if (fork() == 0) {
            close(gate[1]);
            call();
            _exit(write(called[1], &byte, 1) != 1 || read(gate[0], &byte, 1) != 0);
        }
        if (read(called[0], &byte, 1) != 1)
            abort();
    }
    close(gate[1]);
    for (int i = 0; i < count; i++)
        wait(NULL);
    close(gate[0]);
    close(called[0]);
    close(called[1]);
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    void (*run)(int) = strcmp(arguments[1], "threads") ? processes : threads;
    calls = atoi(arguments[3]);
    for (int round = 0; round < 2; round++) {
        run(atoi(arguments[2]));
        printf("round %d\n", round);
        fflush(stdout);
        /* The tracer can be inspected between the rounds. */
        getchar();
    }
    return 0;
}
