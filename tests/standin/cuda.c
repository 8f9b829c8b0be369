/*
 * Stand-in libcuda.so.1: initialisation, entry points, error texts.
 * Devices are in cuda_device.c, contexts in cuda_context.c, memory in cuda_memory.c, kernels in
 * cuda_module.c and cuda_launch.c, streams in cuda_stream.c, copies in
 * cuda_copy.c and cuda_set.c.
 *
 * It exists so that uprobes on the driver can be tested with exact counts on a
 * machine without a GPU. Exported functions are compiled without optimisation:
 * each must begin with `push %rbp`, as nearly all of the real driver's do,
 * because the kernel emulates that instruction and single-steps others.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

#define DEFAULT_DEVICE_BYTES (128ull << 30)
#define MAX_LINGER_NS 1000000000ull
#define DEFAULT_COPY_GBPS 8.0
#define MAX_COPY_GBPS 1e6

struct settings settings;
atomic_bool initialized;

static pthread_once_t setup_once = PTHREAD_ONCE_INIT;

/* A test with a misspelt setting must not pass by running with the default. */
static uint64_t environment_number(const char *name, uint64_t fallback, uint64_t max)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return fallback;
    char *end;
    unsigned long long value = strtoull(text, &end, 0);
    if (*end || *text == '-' || value > max) {
        fprintf(stderr, "stand-in CUDA: %s=%s: expected a number from 0 to %llu\n", name, text,
                (unsigned long long)max);
        abort();
    }
    return value;
}

/* Decimal gigabytes a second are bytes a nanosecond. */
static double environment_speed(const char *name, double fallback, double max)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return fallback;
    char *end;
    double value = strtod(text, &end);
    if (*end || !(value >= 0 && value <= max)) {
        fprintf(stderr, "stand-in CUDA: %s=%s: expected a number from 0 to %g\n", name, text, max);
        abort();
    }
    return value;
}

static enum handle_layout environment_layout(const char *name)
{
    static const char *const layouts[] = {
        [LAYOUT_DRIVER] = "driver",
        [LAYOUT_OTHER] = "other",
        [LAYOUT_TEXT] = "text",
        [LAYOUT_WRONG] = "wrong",
    };
    const char *text = getenv(name);
    if (!text || !*text)
        return LAYOUT_DRIVER;
    for (unsigned int i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (!strcmp(text, layouts[i]))
            return (enum handle_layout)i;
    fprintf(stderr, "stand-in CUDA: %s=%s: expected driver, other, text or wrong\n", name, text);
    abort();
}

static void setup(void)
{
    settings.devices = (int)environment_number("STANDIN_DEVICES", 1, MAX_DEVICES);
    devices_setup();
    settings.device_bytes =
        environment_number("STANDIN_DEVICE_BYTES", DEFAULT_DEVICE_BYTES, UINT64_MAX);
    settings.free_linger_ns = environment_number("STANDIN_FREE_LINGER_NS", 0, MAX_LINGER_NS);
    settings.copy_bytes_per_ns =
        environment_speed("STANDIN_COPY_GBPS", DEFAULT_COPY_GBPS, MAX_COPY_GBPS);
    settings.handle_layout = environment_layout("STANDIN_HANDLE_LAYOUT");
    blocks_setup(settings.device_bytes);
    contexts_setup();
}

CUresult cuInit(unsigned int flags)
{
    FAIL_IF_ARMED();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&setup_once, setup);
    if (settings.devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    atomic_store_explicit(&initialized, true, memory_order_release);
    activity_inject();
    return CUDA_SUCCESS;
}

struct driver_symbol {
    const char *name;
    const char *symbol;
    int since;
    void *function;
    void *twin; /* for per-thread default streams; NULL where there is none */
    const char *twin_symbol;
};

static const struct driver_symbol driver_symbols[] = {
#define DRIVER_SYMBOL(name, since, symbol, parameters) \
    { #name, #symbol, since, (void *)symbol, NULL, NULL },
#define DRIVER_TWINS(name, since, symbol, suffix, parameters) \
    { #name, #symbol, since, (void *)symbol, (void *)symbol##suffix, #symbol #suffix },
#include "cuda_symbols.def"
#undef DRIVER_TWINS
#undef DRIVER_SYMBOL
};

/* The newest row of `name` that is not newer than `cuda_version`. A name that
 * is a whole symbol, like cuMemAlloc_v2, is accepted too. */
static void *find_symbol(const char *name, int cuda_version, bool per_thread, bool *known)
{
    const struct driver_symbol *best = NULL;
    *known = true;
    for (size_t i = 0; i < sizeof driver_symbols / sizeof *driver_symbols; i++) {
        const struct driver_symbol *row = &driver_symbols[i];
        if (row->twin && !strcmp(row->twin_symbol, name))
            return row->twin;
        if (strcmp(row->name, row->symbol) && !strcmp(row->symbol, name))
            return row->function;
        if (!strcmp(row->name, name) && row->since <= cuda_version &&
            (!best || row->since > best->since))
            best = row;
    }
    if (best)
        return per_thread && best->twin ? best->twin : best->function;
    *known = false;
    for (size_t i = 0; i < sizeof driver_symbols / sizeof *driver_symbols; i++)
        if (!strcmp(driver_symbols[i].name, name))
            *known = true;
    return NULL;
}

/* The addresses are those of the exported functions, as on the real driver: a
 * uprobe on the symbol sees calls that the runtime makes through them. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    FAIL_IF_ARMED();
    if (!symbol || !function)
        return CUDA_ERROR_INVALID_VALUE;
    bool known;
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    *function = find_symbol(symbol, cuda_version, per_thread, &known);
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known   ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
