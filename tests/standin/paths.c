/*
 * Allocates at the end of call paths that it is told, a command a line:
 *
 *     call DEPTH PATH BYTES COUNT    allocates and keeps it
 *     thread DEPTH PATH BYTES COUNT  the same in a thread of its own
 *     pairs DEPTH PATH PAIRS         allocates and frees; says how long it took
 *     all DEPTH BYTES                one allocation by each of the 2^DEPTH paths
 *
 * PATH is a number: its lowest bit says whether main calls `left` (0) or `right`
 * (1), the next what that calls, and so on; the last one calls `bottom`.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);

/* Every call is to have a frame under its own name. */
#define FRAME __attribute__((noipa))

struct order {
    unsigned depth;
    uint64_t path;
    size_t bytes;
    uint64_t count;
    int frees;
};

static int left(const struct order *order, unsigned depth, uint64_t path);
static int right(const struct order *order, unsigned depth, uint64_t path);

FRAME static int bottom(const struct order *order)
{
    void *address;
    int failed = 0;

    for (uint64_t i = 0; i < order->count; i++) {
        failed += cudaMalloc(&address, order->bytes) != 0;
        if (order->frees)
            failed += cudaFree(address) != 0;
    }
    return failed;
}

static inline __attribute__((always_inline)) int go_on(const struct order *order, unsigned depth,
                                                       uint64_t path)
{
    if (!depth)
        return bottom(order);
    return path & 1 ? right(order, depth - 1, path >> 1) : left(order, depth - 1, path >> 1);
}

FRAME static int left(const struct order *order, unsigned depth, uint64_t path)
{
    return go_on(order, depth, path) + 0;
}

/* Has a larger frame, with noise in it. */
FRAME static int right(const struct order *order, unsigned depth, uint64_t path)
{
    volatile uint64_t noise[20];

    for (int i = 0; i < 20; i++)
        noise[i] = path * 0x9e3779b97f4a7c15 + (uint64_t)i;
    return go_on(order, depth, path) + (int)(noise[3] - noise[3]);
}

FRAME static int carry_out(const struct order *order)
{
    return go_on(order, order->depth, order->path);
}

FRAME static void *worker(void *order)
{
    return (void *)(intptr_t)carry_out(order);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int in_thread(struct order *order)
{
    pthread_t thread;
    void *failed;

    if (pthread_create(&thread, NULL, worker, order) || pthread_join(thread, &failed))
        return 1;
    return (int)(intptr_t)failed;
}

int main(void)
{
    char line[256], verb[16];

    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        unsigned long long numbers[4] = { 0 };
        struct order order = { 0 };
        int failed = 0;
        uint64_t start = now_ns();

        if (sscanf(line, "%15s %llu %llu %llu %llu", verb, &numbers[0], &numbers[1], &numbers[2],
                   &numbers[3]) < 1)
            continue;
        if (!strcmp(verb, "exit"))
            break;
        order.depth = (unsigned)numbers[0];
        order.path = numbers[1];
        order.bytes = numbers[2];
        order.count = numbers[3];
        if (!strcmp(verb, "pairs")) {
            order.bytes = 4096;
            order.count = numbers[2];
            order.frees = 1;
            failed = carry_out(&order);
        } else if (!strcmp(verb, "all")) {
            order.bytes = numbers[1];
            order.count = 1;
            for (order.path = 0; order.path < 1ull << order.depth; order.path++)
                failed += carry_out(&order);
        } else if (!strcmp(verb, "thread")) {
            failed = in_thread(&order);
        } else {
            failed = carry_out(&order);
        }
        printf("ok failed=%d ns=%llu\n", failed, (unsigned long long)(now_ns() - start));
        fflush(stdout);
    }
    return 0;
}
