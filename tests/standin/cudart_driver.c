/*
 * How the stand-in runtime reaches the driver: like the real one it is not
 * linked with it, but opens libcuda.so.1 on first use and asks
 * cuGetProcAddress_v2 for everything.
 */
#include "cudart_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "cudart_abi.h"

struct driver driver;

static int load_result;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

static const struct import {
    const char *name;
    int cuda_version;
    uint64_t flags;
    void **function;
} imports[] = {
#define IMPORT(member, name, version, symbol) { #name, version, 0, (void **)&driver.member },
    DRIVER_FUNCTIONS(IMPORT)
#undef IMPORT
#define IMPORT(member, name, version, symbol)                            \
    { #name, version, 0, (void **)&driver.legacy.member },               \
        { #name, version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, \
          (void **)&driver.per_thread.member },
        STREAM_FUNCTIONS(IMPORT)
#undef IMPORT
};

static bool import_all(void *library)
{
    __typeof__(&cuGetProcAddress_v2) get_proc_address;
    *(void **)&get_proc_address = dlsym(library, "cuGetProcAddress_v2");
    if (!get_proc_address)
        return false;
    for (size_t i = 0; i < sizeof imports / sizeof *imports; i++)
        if (get_proc_address(imports[i].name, imports[i].function, imports[i].cuda_version,
                             imports[i].flags, NULL))
            return false;
    *(void **)&driver.take_failure = dlsym(library, "standin_take_failure");
    *(void **)&driver.activity_enter = dlsym(library, "standin_activity_enter");
    *(void **)&driver.activity_leave = dlsym(library, "standin_activity_leave");
    return true;
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    load_result =
        library && import_all(library) ? driver.init(0) : (int)cudaErrorInsufficientDriver;
}

int driver_load(void)
{
    pthread_once(&load_once, load);
    return load_result;
}
