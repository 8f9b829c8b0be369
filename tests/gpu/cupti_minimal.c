/*
 * The least that a tracer built on CUPTI does: a record for each kernel, and a
 * count of the records by name. What costs less than this sees less.
 *
 *     CUDA_INJECTION64_PATH=.../libcupti_minimal.so CUPTI_MINIMAL_OUTPUT=FILE PROGRAM
 *
 * CUPTI_MINIMAL_KINDS may name other kinds of records, by their numbers in
 * CUpti_ActivityKind with commas between; of those that are no kernels only how
 * many there were is told.
 *
 * The driver loads it when the program initialises CUDA. At its end the program
 * leaves in FILE.PID one JSON line: the kernels as the GPU ran them, those that
 * came from graphs apart, and how many records CUPTI dropped.
 */
#define _GNU_SOURCE
#include <cupti.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 4 << 20, SLOTS = 1 << 16 };

/* A slot of an open hash table; NULL is free. Names beyond the number of slots are counted as
 * dropped. */
struct kernel {
    char *name;
    uint64_t runs, graph_runs;
};

static struct kernel kernels[SLOTS];
static uint64_t records, others, dropped;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct kernel *find_kernel(const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct kernel *kernel = &kernels[(hash + i) % SLOTS];
        if (!kernel->name)
            kernel->name = strdup(name);
        if (kernel->name && !strcmp(kernel->name, name))
            return kernel;
    }
    return NULL;
}

static void count_record(const CUpti_Activity *record)
{
    /* Its fields up to graphId are those of all later kernel records. */
    const CUpti_ActivityKernel8 *run = (const CUpti_ActivityKernel8 *)record;
    struct kernel *kernel;
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        others++;
        return;
    }
    records++;
    kernel = find_kernel(run->name ? run->name : "");
    if (!kernel)
        dropped++;
    else if (run->graphId)
        kernel->graph_runs++;
    else
        kernel->runs++;
}

static void CUPTIAPI buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0; /* as many as fit */
}

static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer,
                                      size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t lost = 0;
    (void)size;
    pthread_mutex_lock(&lock);
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        count_record(record);
    if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS)
        dropped += lost;
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static FILE *open_output(void)
{
    const char *base = getenv("CUPTI_MINIMAL_OUTPUT");
    char path[4096];
    if (!base)
        return NULL;
    snprintf(path, sizeof path, "%s.%d", base, getpid());
    return fopen(path, "w");
}

/* No kernel name has a character that JSON escapes. */
static void write_counts(void)
{
    FILE *output;
    const char *separator = "";
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    output = open_output();
    if (!output)
        return;
    pthread_mutex_lock(&lock);
    fprintf(output, "{\"records\":%llu,\"others\":%llu,\"dropped\":%llu,\"kernels\":[",
            (unsigned long long)records, (unsigned long long)others, (unsigned long long)dropped);
    for (size_t i = 0; i < SLOTS; i++) {
        if (!kernels[i].name)
            continue;
        fprintf(output, "%s{\"name\":\"%s\",\"runs\":%llu,\"graph_runs\":%llu}", separator,
                kernels[i].name, (unsigned long long)kernels[i].runs,
                (unsigned long long)kernels[i].graph_runs);
        separator = ",";
    }
    fprintf(output, "]}\n");
    pthread_mutex_unlock(&lock);
    fclose(output);
}

static int failed(const char *what, CUptiResult result)
{
    const char *text = "unknown error";
    if (result == CUPTI_SUCCESS)
        return 0;
    cuptiGetResultString(result, &text);
    fprintf(stderr, "cupti_minimal: %s: %s\n", what, text);
    return 1;
}

/* Whether all requested kinds are enabled. */
static int enable_kinds(void)
{
    const char *list = getenv("CUPTI_MINIMAL_KINDS");
    char *next;
    if (!list || !*list)
        return !failed("enable kernel records",
                       cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    for (; *list; list = *next ? next + 1 : next) {
        CUpti_ActivityKind kind = (CUpti_ActivityKind)strtoul(list, &next, 10);
        if (next == list || failed("enable a kind", cuptiActivityEnable(kind)))
            return 0;
    }
    return 1;
}

/* Always 1: the program runs on without the injection. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    static int entered;
    if (__atomic_exchange_n(&entered, 1, __ATOMIC_SEQ_CST))
        return 1;
    if (!failed("register callbacks",
                cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed)) &&
        enable_kinds())
        atexit(write_counts);
    return 1;
}
