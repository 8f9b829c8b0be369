/* Time, for calls with a duration. */
#ifndef STANDIN_CUDA_CLOCK_H
#define STANDIN_CUDA_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void spin_until_ns(uint64_t end_ns)
{
    while (now_ns() < end_ns)
        continue;
}

#endif
