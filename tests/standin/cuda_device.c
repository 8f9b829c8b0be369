/*
 * Stand-in libcuda: devices. STANDIN_DEVICES says how many there are, and
 * CUDA_VISIBLE_DEVICES, as for the real driver, which of them in what order.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

#define UUID_LENGTH 40 /* with "GPU-" */

static int physical_number(const char *text, size_t length)
{
    char name[UUID_LENGTH + 1];
    /* Every MIG device is on the last GPU, as in the stand-in NVML. */
    if (length > strlen("MIG-") && !strncmp(text, "MIG-", strlen("MIG-")))
        return settings.devices - 1;
    for (int device = 0; device < settings.devices; device++) {
        snprintf(name, sizeof name, "%d", device);
        if (length == strlen(name) && !strncmp(text, name, length))
            return device;
        snprintf(name, sizeof name, "GPU-00000000-0000-0000-0000-%012x", (unsigned int)device);
        if (length > strlen("GPU-") && length <= UUID_LENGTH && !strncmp(text, name, length))
            return device;
    }
    return -1;
}

/* As in the real driver, entries after an invalid one are ignored. */
void devices_setup(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    for (int device = 0; device < settings.devices; device++)
        settings.physical[device] = device;
    if (!visible)
        return;
    int count = 0;
    while (count < settings.devices) {
        size_t length = strcspn(visible, ",");
        int device = physical_number(visible, length);
        if (device < 0)
            break;
        settings.physical[count++] = device;
        if (!visible[length])
            break;
        visible += length + 1;
    }
    settings.devices = count;
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER_INITIALIZED();
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = settings.devices;
    return CUDA_SUCCESS;
}

#define MAX_ENDPOINTS 64
static atomic_bool endpoints[MAX_ENDPOINTS];

static CUresult set_endpoint(CUlogicalEndpointId id, bool exists)
{
    return id < MAX_ENDPOINTS && atomic_exchange(&endpoints[id], exists) != exists
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointCreate(CUlogicalEndpointId id, const CUlogicalEndpointProp *properties)
{
    ENTER_INITIALIZED();
    return properties ? set_endpoint(id, true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointDestroy(CUlogicalEndpointId id)
{
    ENTER_INITIALIZED();
    return set_endpoint(id, false);
}

enum { RUNNING, LOCKED, CHECKPOINTED };
static atomic_int state;

/* The states of a process that is checkpointed. Here its memory stays, and the caller has its
 * state: no two callers checkpoint one process, and none two at a time. */
#define CHECKPOINT_STEP(function, from, to)                         \
    CUresult function(int pid, void *args)                          \
    {                                                               \
        ENTER_INITIALIZED();                                        \
        int expected = from;                                        \
        (void)args;                                                 \
        if (kill(pid, 0))                                           \
            return CUDA_ERROR_INVALID_VALUE;                        \
        if (!atomic_compare_exchange_strong(&state, &expected, to)) \
            return CUDA_ERROR_ILLEGAL_STATE;                        \
        return CUDA_SUCCESS;                                        \
    }

CHECKPOINT_STEP(cuCheckpointProcessLock, RUNNING, LOCKED)
CHECKPOINT_STEP(cuCheckpointProcessCheckpoint, LOCKED, CHECKPOINTED)
CHECKPOINT_STEP(cuCheckpointProcessRestore, CHECKPOINTED, LOCKED)
CHECKPOINT_STEP(cuCheckpointProcessUnlock, LOCKED, RUNNING)
