/*
 * An injection in front of the collector, for tests without gpuprobe: whatever
 * the collector hands over is appended to the file SPY_OUTPUT.
 *
 * It is what CUDA_INJECTION64_PATH names; SPY_COLLECTOR names the collector.
 * The collector's function that does nothing gets a jump to `take` written over
 * its beginning, so that the file that users get is tested, and unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

static int output = -1;

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "spy: %s: %s\n", what, detail ? detail : "not set");
    abort();
}

/* One write per batch: batches of several processes do not mix. */
static void take(const void *batch, size_t bytes)
{
    if (write(output, batch, bytes) != (ssize_t)bytes)
        fail("write", "short");
}

/* Libraries are mapped near each other, so that a short jump reaches: the function has no more than
 * six bytes, and others follow it. */
static void redirect(void *function)
{
    intptr_t distance = (intptr_t)take - (intptr_t)function;
#if defined(__x86_64__)
    const intptr_t reach = INT32_MAX;
    uint8_t jump[5] = { 0xe9 };
    int32_t offset = (int32_t)(distance - (intptr_t)sizeof jump);
    memcpy(jump + 1, &offset, sizeof offset);
#elif defined(__aarch64__)
    const intptr_t reach = (1 << 27) - 4;
    uint32_t jump = 0x14000000u | ((uint32_t)(distance >> 2) & 0x03ffffffu);
#else
#error "no jump for this architecture"
#endif
    if (distance > reach || distance < -reach)
        fail("jump", "too far");
    uintptr_t page = (uintptr_t)function / PAGE_BYTES * PAGE_BYTES;
    if (mprotect((void *)page, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC))
        fail("mprotect", "refused");
    memcpy(function, &jump, sizeof jump);
    __builtin___clear_cache((char *)function, (char *)function + sizeof jump);
}

__attribute__((visibility("default"))) int InitializeInjection(void)
{
    const char *path = getenv("SPY_COLLECTOR"), *file = getenv("SPY_OUTPUT");
    if (!path || !file)
        fail("SPY_COLLECTOR, SPY_OUTPUT", NULL);
    output = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (output < 0)
        fail("open", file);
    void *collector = dlopen(path, RTLD_NOW);
    if (!collector)
        fail("dlopen", dlerror());
    void *function = dlsym(collector, "gpuprobe_activity_batch");
    int (*initialize)(void);
    *(void **)&initialize = dlsym(collector, "InitializeInjection");
    if (!function || !initialize)
        fail("dlsym", path);
    redirect(function);
    /* NVTX may be used before CUDA is. The call is forwarded to CUPTI. */
    int (*nvtx)(void *);
    *(void **)&nvtx = dlsym(collector, "InitializeInjectionNvtx2");
    if (getenv("SPY_NVTX") && (!nvtx || !nvtx((void *)nvtx) || nvtx(NULL)))
        fail("InitializeInjectionNvtx2", "wrong");
    int result = initialize();
    /* The driver would not call it twice. */
    if (result != 1 || initialize() != 1)
        fail("InitializeInjection", "not 1");
    return result;
}
