/*
 * Stand-in libcuda.so.1: initialisation, devices, entry points, error texts.
 * Contexts are in cuda_context.c, memory in cuda_memory.c.
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

#include "cuda_blocks.h"
#include "cuda_internal.h"
#include "error_text.h"

#define DEFAULT_DEVICE_BYTES (128ull << 30)
#define MAX_LINGER_NS 1000000000ull

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

static void setup(void)
{
    settings.devices = (int)environment_number("STANDIN_DEVICES", 1, MAX_DEVICES);
    settings.device_bytes =
        environment_number("STANDIN_DEVICE_BYTES", DEFAULT_DEVICE_BYTES, UINT64_MAX);
    settings.free_linger_ns = environment_number("STANDIN_FREE_LINGER_NS", 0, MAX_LINGER_NS);
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
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    FAIL_IF_ARMED();
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    FAIL_IF_ARMED();
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = error_text(error);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER_INITIALIZED();
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = settings.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER_INITIALIZED();
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

struct driver_symbol {
    const char *name;
    const char *symbol;
    int since;
    void *function;
};

static const struct driver_symbol driver_symbols[] = {
#define DRIVER_SYMBOL(name, since, symbol) { #name, #symbol, since, (void *)symbol },
#include "cuda_symbols.def"
#undef DRIVER_SYMBOL
};

/* The newest row of `name` that is not newer than `cuda_version`. A name that
 * carries its version, like cuMemAlloc_v2, is accepted too. */
static const struct driver_symbol *find_symbol(const char *name, int cuda_version, bool *known)
{
    const struct driver_symbol *best = NULL;
    *known = false;
    for (size_t i = 0; i < sizeof driver_symbols / sizeof *driver_symbols; i++) {
        const struct driver_symbol *row = &driver_symbols[i];
        bool exact = strcmp(row->name, row->symbol) && !strcmp(row->symbol, name);
        if (exact) {
            *known = true;
            return row;
        }
        if (strcmp(row->name, name))
            continue;
        *known = true;
        if (row->since <= cuda_version && (!best || row->since > best->since))
            best = row;
    }
    return best;
}

/* The addresses are those of the exported functions, as on the real driver: a
 * uprobe on the symbol sees calls that the runtime makes through them. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    FAIL_IF_ARMED();
    (void)flags;
    if (!symbol || !function)
        return CUDA_ERROR_INVALID_VALUE;
    bool known;
    const struct driver_symbol *row = find_symbol(symbol, cuda_version, &known);
    *function = row ? row->function : NULL;
    if (status)
        *status = row     ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return row ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
