/* Backend: a libcudart that is opened while the program runs, for tracers that must attach to a
 * library that was not there at the start. */
#include <dlfcn.h>

#include "workload_runtime.h"

struct runtime runtime;

static const struct import {
    const char *name;
    void **function;
} imports[] = { { "cudaMalloc", (void **)&api.alloc },
                { "cudaFree", (void **)&api.release },
                { "cudaSetDevice", (void **)&api.set_device },
                { "cudaGetDevice", (void **)&api.get_device },
                { "cudaGetDeviceCount", (void **)&api.device_count },
                { "cudaMemGetInfo", (void **)&api.memory },
                { "cudaDeviceSynchronize", (void **)&api.synchronize },
                { "cudaDeviceReset", (void **)&api.reset },
#define FUNCTION(symbol) { #symbol, (void **)&runtime.symbol },
                RUNTIME_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

enum { IMPORTS = sizeof imports / sizeof *imports };

static const char *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return dlerror();
    void *functions[IMPORTS];
    for (int i = 0; i < IMPORTS; i++) {
        functions[i] = dlsym(library, imports[i].name);
        if (!functions[i])
            return dlerror();
    }
    for (int i = 0; i < IMPORTS; i++)
        *imports[i].function = functions[i];
    return NULL;
}

struct api api = { .name = "dlopen",
                   .load = load,
                   .work = &runtime_work,
                   .kinds = &runtime_memory,
                   .pools = &runtime_pools };
