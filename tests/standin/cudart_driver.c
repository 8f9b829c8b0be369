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
    void **function;
} imports[] = {
    { "cuInit", 2000, (void **)&driver.init },
    { "cuDeviceGetCount", 2000, (void **)&driver.device_get_count },
    { "cuDevicePrimaryCtxRetain", 7000, (void **)&driver.primary_retain },
    { "cuDevicePrimaryCtxReset", 11000, (void **)&driver.primary_reset },
    { "cuCtxGetCurrent", 4000, (void **)&driver.get_current },
    { "cuCtxSetCurrent", 4000, (void **)&driver.set_current },
    { "cuCtxGetDevice", 13000, (void **)&driver.get_device },
    { "cuCtxSynchronize", 2000, (void **)&driver.synchronize },
    { "cuMemAlloc", 3020, (void **)&driver.mem_alloc },
    { "cuMemFree", 3020, (void **)&driver.mem_free },
    { "cuMemGetInfo", 3020, (void **)&driver.mem_get_info },
};

static bool import_all(void *library)
{
    __typeof__(&cuGetProcAddress_v2) get_proc_address;
    *(void **)&get_proc_address = dlsym(library, "cuGetProcAddress_v2");
    if (!get_proc_address)
        return false;
    for (size_t i = 0; i < sizeof imports / sizeof *imports; i++)
        if (get_proc_address(imports[i].name, imports[i].function, imports[i].cuda_version, 0,
                             NULL))
            return false;
    *(void **)&driver.take_failure = dlsym(library, "standin_take_failure");
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
