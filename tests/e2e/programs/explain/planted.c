// One function per allocation pattern, each a call site of its own, run for as many seconds as the
// argument says. Names of the leaking ones begin with leak_.

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

extern int cudaMalloc(void **pointer, size_t size);
extern int cudaFree(void *pointer);

enum { KIB = 1024, SLOTS = 4096 };

// The live allocations of a function, oldest first.
struct held {
    void *blocks[SLOTS];
    unsigned first, next;
};

static void *allocate(size_t bytes)
{
    void *pointer = NULL;
    if (cudaMalloc(&pointer, bytes))
        exit(1);
    return pointer;
}

// Each function has an allocation of its own; otherwise the call sites would be one.
#define HOLD(held, bytes)                                 \
    do {                                                  \
        void *pointer = NULL;                             \
        if (cudaMalloc(&pointer, bytes))                  \
            exit(1);                                      \
        (held)->blocks[(held)->next++ % SLOTS] = pointer; \
    } while (0)

static void drop(struct held *held)
{
    if (held->first != held->next)
        cudaFree(held->blocks[held->first++ % SLOTS]);
}

static void drop_all(struct held *held)
{
    while (held->first != held->next)
        drop(held);
}

static unsigned count_of(const struct held *held)
{
    return held->next - held->first;
}

// Every function is called each 10 ms, with the number of its earlier calls.
static void leak_linear(unsigned tick)
{
    static struct held held;
    if (tick % 20 == 0)
        HOLD(&held, 64 * KIB);
}

static void leak_one_in_a_hundred(unsigned tick)
{
    static struct held held;
    void *kept = NULL;
    if (cudaMalloc(&kept, 8 * KIB))
        exit(1);
    if (tick % 100 != 0) {
        held.blocks[held.next++ % SLOTS] = kept;
        if (count_of(&held) > 10)
            drop(&held);
    }
}

static void leak_in_sawtooth(unsigned tick)
{
    static struct held held;
    if (tick % 5 == 0) {
        void *pointer = NULL;
        if (cudaMalloc(&pointer, 16 * KIB))
            exit(1);
        if (tick % 100 != 0)
            held.blocks[held.next++ % SLOTS] = pointer;
    }
    if (tick % 200 == 199)
        drop_all(&held);
}

static void leak_by_request(unsigned tick)
{
    static struct held held;
    if (tick % 150 >= 8)
        return;
    void *pointer = NULL;
    if (cudaMalloc(&pointer, 32 * KIB))
        exit(1);
    if (tick % 150 != 0)
        held.blocks[held.next++ % SLOTS] = pointer;
    if (tick % 150 == 7)
        drop_all(&held);
}

static void leak_under_load(unsigned tick)
{
    static struct held held;
    for (int i = 0; i < 4; i++) {
        void *pointer = NULL;
        if (cudaMalloc(&pointer, 4 * KIB))
            exit(1);
        if (tick % 50 == 0 && i == 0)
            continue;
        held.blocks[held.next++ % SLOTS] = pointer;
        if (count_of(&held) > 400)
            drop(&held);
    }
}

static void cache_of_fifty(unsigned tick)
{
    static struct held held;
    if (tick % 4 == 0)
        HOLD(&held, 128 * KIB);
    if (count_of(&held) > 50)
        drop(&held);
}

static void batch_of_four_seconds(unsigned tick)
{
    static struct held held;
    if (tick % 10 == 0)
        HOLD(&held, 256 * KIB);
    if (tick % 400 == 399)
        drop_all(&held);
}

static void warm_up_of_thirty_seconds(unsigned tick)
{
    static struct held held;
    if (tick % 50 == 0 && tick < 3000)
        HOLD(&held, 512 * KIB);
}

static void workspace_once(unsigned tick)
{
    static struct held held;
    if (tick < 4)
        HOLD(&held, 2048 * KIB);
}

int main(int count, char **words)
{
    int seconds = count > 1 ? atoi(words[1]) : 0;
    struct timespec next;
    cudaFree(allocate(1));
    printf("ready %d\n", getpid());
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (unsigned tick = 0; tick < 100u * (unsigned)seconds; tick++) {
        leak_linear(tick);
        leak_one_in_a_hundred(tick);
        leak_in_sawtooth(tick);
        leak_by_request(tick);
        leak_under_load(tick);
        cache_of_fifty(tick);
        batch_of_four_seconds(tick);
        warm_up_of_thirty_seconds(tick);
        workspace_once(tick);
        next.tv_nsec += 10000000;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    return 0;
}
