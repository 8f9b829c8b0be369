/* The stressor's command line. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stressor.h"

static const char help[] =
    "usage: stressor [OPTION]...\n"
    "\n"
    "Allocates and frees memory of the stand-in CUDA at a steady rate, up to a million\n"
    "calls a second, and says as its last line, in JSON, exactly what it did.\n"
    "\n"
    "  --throughput N      calls a second, allocations and frees of all threads\n"
    "                      together; 0: as many as go (default: 1000)\n"
    "  --allocate-size B   bytes of an allocation; K, M, G: powers of 1024 (64K)\n"
    "  --free-ratio R      the part of all allocations that is freed, 0 to 1, each\n"
    "                      chosen by chance (1)\n"
    "  --threads N         of each process (1)\n"
    "  --procs N           processes; with more than one this one only waits for them (1)\n"
    "  --duration S        seconds; 0: until a signal comes (10)\n"
    "  --calls N           end after so many calls; 0: at the end of the duration (0)\n"
    "  --seed N            of what is left to chance (1)\n"
    "  --anomaly-mb N      one block of so many MiB that is never freed; 0: none (0)\n"
    "  --anomaly-thread N  the thread of the first process that allocates it, from 0 (0)\n"
    "  --anomaly-iter N    before which of its allocations, from 0 (10)\n"
    "  --wait              for a line on standard input before the first call\n"
    "\n"
    "What is counted: each allocation is one call of cudaMalloc and each free one call\n"
    "of cudaFree. What is live at the end is not freed. SIGINT and SIGTERM end it as\n"
    "its duration does. Before the first call it prints `ready PID`.\n";

static void refuse(const char *name, const char *text, const char *wanted)
{
    fprintf(stderr, "stressor: --%s %s: expected %s\n", name, text, wanted);
    exit(2);
}

static double real(const char *name, const char *text, double max)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= max))
        refuse(name, text, "a number that is not negative, nor too large");
    return value;
}

static uint64_t whole(const char *name, const char *text, uint64_t min, uint64_t max)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end || *text == '-' || errno || value < min || value > max)
        refuse(name, text, "a whole number in its range");
    return value;
}

static uint64_t size(const char *name, const char *text)
{
    static const char units[] = "KMG";
    char *end;
    double value = strtod(text, &end);
    const char *unit = end != text && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        value = ldexp(value, 10 * (int)(unit - units + 1));
        end++;
    }
    if (end == text || *end || !(value >= 1 && value < 0x1p63))
        refuse(name, text, "a size, with K, M or G");
    return (uint64_t)value;
}

enum {
    THROUGHPUT = 1,
    ALLOCATE_SIZE,
    FREE_RATIO,
    THREADS,
    PROCS,
    DURATION,
    CALLS,
    SEED,
    ANOMALY_MB,
    ANOMALY_THREAD,
    ANOMALY_ITER,
    WAIT,
    HELP,
};

static const struct option options[] = {
    { "throughput", required_argument, NULL, THROUGHPUT },
    { "allocate-size", required_argument, NULL, ALLOCATE_SIZE },
    { "free-ratio", required_argument, NULL, FREE_RATIO },
    { "threads", required_argument, NULL, THREADS },
    { "procs", required_argument, NULL, PROCS },
    { "duration", required_argument, NULL, DURATION },
    { "calls", required_argument, NULL, CALLS },
    { "seed", required_argument, NULL, SEED },
    { "anomaly-mb", required_argument, NULL, ANOMALY_MB },
    { "anomaly-thread", required_argument, NULL, ANOMALY_THREAD },
    { "anomaly-iter", required_argument, NULL, ANOMALY_ITER },
    { "wait", no_argument, NULL, WAIT },
    { "help", no_argument, NULL, HELP },
    { NULL, 0, NULL, 0 },
};

static void apply(struct plan *plan, int option, const char *name, const char *text)
{
    switch (option) {
    case THROUGHPUT:
        plan->throughput = real(name, text, MAX_THROUGHPUT);
        break;
    case ALLOCATE_SIZE:
        plan->allocate_size = size(name, text);
        break;
    case FREE_RATIO:
        plan->free_ratio = real(name, text, 1);
        break;
    case THREADS:
        plan->threads = whole(name, text, 1, MAX_THREADS);
        break;
    case PROCS:
        plan->procs = whole(name, text, 1, MAX_PROCS);
        break;
    case DURATION:
        plan->duration = real(name, text, 1e9);
        break;
    case CALLS:
        plan->calls = whole(name, text, 0, UINT64_MAX);
        break;
    case SEED:
        plan->seed = whole(name, text, 0, UINT64_MAX);
        break;
    case ANOMALY_MB:
        plan->anomaly_bytes = whole(name, text, 0, UINT64_MAX >> 20) << 20;
        break;
    case ANOMALY_THREAD:
        plan->anomaly_thread = whole(name, text, 0, MAX_THREADS);
        break;
    case ANOMALY_ITER:
        plan->anomaly_iter = whole(name, text, 0, UINT64_MAX);
        break;
    case WAIT:
        plan->wait = true;
        break;
    case HELP:
        fputs(help, stdout);
        exit(0);
    default: /* getopt has printed the error */
        exit(2);
    }
}

struct plan plan_of(int argc, char **argv)
{
    struct plan plan = { .throughput = 1000,
                         .allocate_size = 64 << 10,
                         .free_ratio = 1,
                         .threads = 1,
                         .procs = 1,
                         .duration = 10,
                         .seed = 1,
                         .anomaly_iter = 10 };
    int option, index = 0;
    while ((option = getopt_long(argc, argv, "", options, &index)) != -1)
        apply(&plan, option, options[index].name, optarg);
    if (optind < argc || plan.anomaly_thread >= plan.threads) {
        fprintf(stderr, "stressor: %s\n",
                optind < argc ? "only options are expected" : "there is no such --anomaly-thread");
        exit(2);
    }
    return plan;
}
