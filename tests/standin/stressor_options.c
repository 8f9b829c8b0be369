/* The stressor's command line. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
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

/* Each is a member of the plan. */
static const struct row {
    const char *name;
    enum { REAL, WHOLE, SIZE, MIB, FLAG } type;
    size_t member;
    double min, max;
} rows[] = {
#define MEMBER(name) offsetof(struct plan, name)
    { "throughput", REAL, MEMBER(throughput), 0, MAX_THROUGHPUT },
    { "allocate-size", SIZE, MEMBER(allocate_size), 1, 0x1p63 },
    { "free-ratio", REAL, MEMBER(free_ratio), 0, 1 },
    { "threads", WHOLE, MEMBER(threads), 1, MAX_THREADS },
    { "procs", WHOLE, MEMBER(procs), 1, MAX_PROCS },
    { "duration", REAL, MEMBER(duration), 0, 1e9 },
    { "calls", WHOLE, MEMBER(calls), 0, 0x1p64 },
    { "seed", WHOLE, MEMBER(seed), 0, 0x1p64 },
    { "anomaly-mb", MIB, MEMBER(anomaly_bytes), 0, 0x1p44 - 1 },
    { "anomaly-thread", WHOLE, MEMBER(anomaly_thread), 0, MAX_THREADS },
    { "anomaly-iter", WHOLE, MEMBER(anomaly_iter), 0, 0x1p64 },
    { "wait", FLAG, MEMBER(wait), 0, 0 },
};
enum { ROWS = sizeof rows / sizeof *rows, HELP = ROWS };

static void refuse(const struct row *row, const char *text)
{
    static const char *const expected[] = { [REAL] = "a number that is not negative, nor too large",
                                            [WHOLE] = "a whole number in its range",
                                            [MIB] = "a whole number in its range",
                                            [SIZE] = "a size, with K, M or G" };
    fprintf(stderr, "stressor: --%s %s: expected %s\n", row->name, text, expected[row->type]);
    exit(2);
}

static double parse_real(const struct row *row, const char *text)
{
    static const char units[] = "KMG";
    char *end;
    double value = strtod(text, &end);
    bool has_unit = row->type == SIZE && end != text && *end;
    const char *unit = has_unit ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        value = ldexp(value, 10 * (int)(unit - units + 1));
        end++;
    }
    bool too_large = row->type == SIZE ? value >= row->max : value > row->max;
    if (end == text || *end || !(value >= row->min) || too_large)
        refuse(row, text);
    return value;
}

static uint64_t parse_whole(const struct row *row, const char *text)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text || *end || *text == '-' || errno || (double)value < row->min ||
        (double)value > row->max)
        refuse(row, text);
    return value;
}

static void apply(struct plan *plan, const struct row *row, const char *text)
{
    void *member = (char *)plan + row->member;
    switch (row->type) {
    case REAL:
        *(double *)member = parse_real(row, text);
        break;
    case SIZE:
        *(uint64_t *)member = (uint64_t)parse_real(row, text);
        break;
    case WHOLE:
        *(uint64_t *)member = parse_whole(row, text);
        break;
    case MIB:
        *(uint64_t *)member = parse_whole(row, text) << 20;
        break;
    case FLAG:
        *(bool *)member = true;
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
    struct option options[ROWS + 2] = { [ROWS] = { "help", no_argument, NULL, HELP } };
    for (int i = 0; i < ROWS; i++)
        options[i] = (struct option){ rows[i].name, rows[i].type != FLAG, NULL, i };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == HELP)
            fputs(help, stdout);
        if (option == HELP || option == '?') /* getopt has printed the error */
            exit(option == HELP ? 0 : 2);
        apply(&plan, &rows[option], optarg);
    }
    if (optind < argc || plan.anomaly_thread >= plan.threads) {
        fprintf(stderr, "stressor: %s\n",
                optind < argc ? "only options are expected" : "there is no such --anomaly-thread");
        exit(2);
    }
    return plan;
}
