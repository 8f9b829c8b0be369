/*
 * Short processes, one after the other: `crowd FORKS EXECS PROGRAM`. Each of the first
 * makes two allocations, frees one, and ends; each of the others is PROGRAM. Says how
 * many ended well, and the milliseconds from start to end of the slowest of them.
 */
#define _GNU_SOURCE
#include "hooked.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int ended_well(pid_t child)
{
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int fork_one(void)
{
    pid_t child = fork();
    if (child == 0) {
        void *blocks[2];
        cudaMalloc(&blocks[0], 512);
        cudaMalloc(&blocks[1], 512);
        cudaFree(blocks[0]);
        _exit(0);
    }
    return ended_well(child);
}

static int execute_one(const char *program)
{
    pid_t child = vfork();
    if (child == 0) {
        execl(program, program, NULL);
        _exit(127);
    }
    return ended_well(child);
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int count, char **arguments)
{
    int well = 0, forks, execs;
    long slowest = 0;
    if (count != 4)
        return 2;
    forks = atoi(arguments[1]);
    execs = atoi(arguments[2]);
    for (int i = 0; i < forks + execs; i++) {
        long start = now_ms();
        well += i < forks ? fork_one() : execute_one(arguments[3]);
        long taken = now_ms() - start;
        slowest = taken > slowest ? taken : slowest;
    }
    printf("ended well %d slowest %ld\n", well, slowest);
    return 0;
}
