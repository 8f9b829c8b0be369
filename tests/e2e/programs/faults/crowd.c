/*
 * Short processes, one after the other: `crowd FORKS EXECS PROGRAM`. Each of the first
 * makes two allocations, frees one, and ends; each of the others is PROGRAM.
 */
#define _GNU_SOURCE
#include "hooked.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
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

int main(int count, char **arguments)
{
    int well = 0;
    if (count != 4)
        return 2;
    for (int i = 0; i < atoi(arguments[1]); i++)
        well += fork_one();
    for (int i = 0; i < atoi(arguments[2]); i++)
        well += execute_one(arguments[3]);
    printf("ended well %d\n", well);
    return 0;
}
