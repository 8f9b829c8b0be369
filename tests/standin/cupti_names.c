/* Stand-in libcupti: callback ids of functions, CUPTI's own where known. */
#include "cupti_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAMES 1024
#define FIRST_OWN 2000

static const struct known {
    int layer;
    uint32_t cbid;
    const char *function;
    const char *name; /* CUPTI's name for it; NULL: the same */
} known[] = {
    { ACTIVITY_RUNTIME, 20, "cudaMalloc", "cudaMalloc_v3020" },
    { ACTIVITY_RUNTIME, 22, "cudaFree", "cudaFree_v3020" },
    { ACTIVITY_RUNTIME, 31, "cudaMemcpy", "cudaMemcpy_v3020" },
    { ACTIVITY_RUNTIME, 41, "cudaMemcpyAsync", "cudaMemcpyAsync_v3020" },
    { ACTIVITY_RUNTIME, 49, "cudaMemset", "cudaMemset_v3020" },
    { ACTIVITY_RUNTIME, 131, "cudaStreamSynchronize", "cudaStreamSynchronize_v3020" },
    { ACTIVITY_RUNTIME, 164, "cudaDeviceReset", "cudaDeviceReset_v3020" },
    { ACTIVITY_RUNTIME, 165, "cudaDeviceSynchronize", "cudaDeviceSynchronize_v3020" },
    { ACTIVITY_RUNTIME, 211, "cudaLaunchKernel", "cudaLaunchKernel_v7000" },
    { ACTIVITY_RUNTIME, 311, "cudaGraphLaunch", "cudaGraphLaunch_v10000" },
    { ACTIVITY_DRIVER, 17, "cuCtxSynchronize", NULL },
    { ACTIVITY_DRIVER, 126, "cuStreamSynchronize", NULL },
    { ACTIVITY_DRIVER, 243, "cuMemAlloc_v2", NULL },
    { ACTIVITY_DRIVER, 245, "cuMemFree_v2", NULL },
    { ACTIVITY_DRIVER, 276, "cuMemcpyHtoD_v2", NULL },
    { ACTIVITY_DRIVER, 278, "cuMemcpyDtoH_v2", NULL },
    { ACTIVITY_DRIVER, 307, "cuLaunchKernel", NULL },
    { ACTIVITY_DRIVER, 514, "cuGraphLaunch", NULL },
};

/* All others, numbered at their first call; under `lock`. */
static struct {
    int layer;
    char name[64];
} own[MAX_NAMES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint32_t cbid_of(int layer, const char *function)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].layer == layer && !strcmp(known[i].function, function))
            return known[i].cbid;
    uint32_t cbid = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < MAX_NAMES && !cbid; i++) {
        if (!*own[i].name) {
            own[i].layer = layer;
            snprintf(own[i].name, sizeof own[i].name, "%s", function);
        }
        if (own[i].layer == layer && !strcmp(own[i].name, function))
            cbid = FIRST_OWN + i;
    }
    pthread_mutex_unlock(&lock);
    return cbid;
}

const char *cbid_name(int layer, uint32_t cbid)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].layer == layer && known[i].cbid == cbid)
            return known[i].name ? known[i].name : known[i].function;
    bool is_own = cbid >= FIRST_OWN && cbid < FIRST_OWN + MAX_NAMES;
    return is_own && own[cbid - FIRST_OWN].layer == layer ? own[cbid - FIRST_OWN].name : NULL;
}
