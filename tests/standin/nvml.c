/*
 * Stand-in libnvidia-ml.so.1.
 *
 * STANDIN_NVML_DEVICES is how many devices there are (1). STANDIN_NVML_PROCESSES
 * names a file with a line "DEVICE PID BYTES" for each process on a device, which
 * is read anew at each call; without it there are none. An "x" for the BYTES is
 * what NVML says where it does not know. STANDIN_NVML_MINORS is the number of the
 * first one's device node, if that is to be known. With STANDIN_NVML_NO_MEMORY, no
 * device says what its memory holds. STANDIN_NVML_BUSY is how busy all are, in per
 * cent, if that is to be known.
 */
#include "nvml_abi.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 16
#define DEVICE_BYTES (128ull << 30)
#define RESERVED_BYTES (1ull << 29)
#define UNKNOWN_BYTES (~0ull)
#define MEMORY_V2 (sizeof(nvmlMemory_v2_t) | 2u << 24)
#define NO_INSTANCE (~0u)

struct nvmlDevice_st {
    unsigned int index;
};

static struct nvmlDevice_st devices[MAX_DEVICES];
static struct nvmlDevice_st part; /* a MIG device: it is on the last GPU */
static unsigned int device_count;
static atomic_int users;
static atomic_int left_open;

#define RETURN_IF(condition, error) \
    do {                            \
        if (condition)              \
            return (error);         \
    } while (0)

/* First statement of every function about a device. */
#define ENTER_DEVICE(device, out)                                                     \
    do {                                                                              \
        RETURN_IF(!atomic_load(&users), NVML_ERROR_UNINITIALIZED);                    \
        RETURN_IF(!(out) || (device) < devices || (device) >= devices + device_count, \
                  NVML_ERROR_INVALID_ARGUMENT);                                       \
    } while (0)

nvmlReturn_t nvmlInit_v2(void)
{
    const char *text = getenv("STANDIN_NVML_DEVICES");
    char *end = NULL;
    unsigned long count = text && *text ? strtoul(text, &end, 0) : 1;
    if (count > MAX_DEVICES || (end && *end)) {
        fprintf(stderr, "stand-in NVML: STANDIN_NVML_DEVICES=%s: expected a number to %d\n", text,
                MAX_DEVICES);
        abort();
    }
    for (unsigned int i = 0; i < count; i++)
        devices[i].index = i;
    device_count = (unsigned int)count;
    /* As libraries do that were written without exec in mind. */
    if (!atomic_exchange(&left_open, 1))
        (void)open("/dev/null", O_RDONLY);
    atomic_fetch_add(&users, 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
    RETURN_IF(!atomic_load(&users), NVML_ERROR_UNINITIALIZED);
    atomic_fetch_sub(&users, 1);
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    default:
        return "Unknown Error";
    }
}

static nvmlReturn_t copy_text(char *to, unsigned int length, const char *text)
{
    RETURN_IF(!to, NVML_ERROR_INVALID_ARGUMENT);
    RETURN_IF(strlen(text) >= length, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(to, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    RETURN_IF(!atomic_load(&users), NVML_ERROR_UNINITIALIZED);
    return copy_text(version, length, "580.0.standin");
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    RETURN_IF(!atomic_load(&users), NVML_ERROR_UNINITIALIZED);
    RETURN_IF(!count, NVML_ERROR_INVALID_ARGUMENT);
    *count = device_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    RETURN_IF(!atomic_load(&users), NVML_ERROR_UNINITIALIZED);
    RETURN_IF(!device || index >= device_count, NVML_ERROR_INVALID_ARGUMENT);
    *device = &devices[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    ENTER_DEVICE(device, index);
    *index = device->index;
    return NVML_SUCCESS;
}

/* All zeros but for the number, as the stand-in driver takes it in CUDA_VISIBLE_DEVICES. */
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    ENTER_DEVICE(device, uuid);
    char text[64];
    snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-%012x", device->index);
    return copy_text(uuid, length, text);
}

static nvmlReturn_t find_device(const char *uuid, nvmlDevice_t *device)
{
    char text[64];
    for (unsigned int i = 0; i < device_count; i++) {
        nvmlDeviceGetUUID(&devices[i], text, sizeof text);
        if (!strcmp(text, uuid)) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    RETURN_IF(!atomic_load(&users), NVML_ERROR_UNINITIALIZED);
    RETURN_IF(!uuid || !device, NVML_ERROR_INVALID_ARGUMENT);
    if (!strncmp(uuid, "MIG-", strlen("MIG-"))) {
        *device = &part;
        return NVML_SUCCESS;
    }
    return find_device(uuid, device);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    RETURN_IF(!atomic_load(&users), NVML_ERROR_UNINITIALIZED);
    RETURN_IF(mig != &part || !device || !device_count, NVML_ERROR_INVALID_ARGUMENT);
    *device = &devices[device_count - 1];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    ENTER_DEVICE(device, name);
    return copy_text(name, length, "Stand-in GPU");
}

/* Known with STANDIN_NVML_MINORS only, which is that of the first. */
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    ENTER_DEVICE(device, minor);
    const char *first = getenv("STANDIN_NVML_MINORS");
    RETURN_IF(!first, NVML_ERROR_NOT_SUPPORTED);
    *minor = (unsigned int)strtoul(first, NULL, 0) + device->index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    ENTER_DEVICE(device, pci);
    *pci = (nvmlPciInfo_t){ .bus = device->index + 1, .pciDeviceId = 0x233510de };
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    return NVML_SUCCESS;
}

/* Known with STANDIN_NVML_BUSY only, in per cent, of all devices. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    ENTER_DEVICE(device, utilization);
    const char *busy = getenv("STANDIN_NVML_BUSY");
    RETURN_IF(!busy, NVML_ERROR_NOT_SUPPORTED);
    *utilization = (nvmlUtilization_t){ .gpu = (unsigned int)strtoul(busy, NULL, 0) };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    ENTER_DEVICE(device, current);
    (void)pending;
    return NVML_ERROR_NOT_SUPPORTED;
}

/* The processes on `device`, as far as `infos` has `room`. Returns how many. */
static unsigned int read_processes(nvmlDevice_t device, nvmlProcessInfo_t *infos, unsigned int room,
                                   unsigned long long *used)
{
    const char *path = getenv("STANDIN_NVML_PROCESSES");
    FILE *file = path && *path ? fopen(path, "r") : NULL;
    unsigned int count = 0, index, pid;
    char bytes[32];
    while (file && fscanf(file, "%u %u %31s", &index, &pid, bytes) == 3) {
        if (index != device->index)
            continue;
        unsigned long long known = *bytes == 'x' ? UNKNOWN_BYTES : strtoull(bytes, NULL, 0);
        if (known != UNKNOWN_BYTES)
            *used += known;
        if (count < room)
            infos[count] = (nvmlProcessInfo_t){ pid, known, NO_INSTANCE, NO_INSTANCE };
        count++;
    }
    if (file)
        fclose(file);
    return count;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    ENTER_DEVICE(device, memory);
    unsigned long long used = 0;
    read_processes(device, NULL, 0, &used);
    *memory = (nvmlMemory_t){ DEVICE_BYTES, used < DEVICE_BYTES ? DEVICE_BYTES - used : 0, used };
    return NVML_SUCCESS;
}

/* As version 1, but memory reserved by the driver is not counted as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    ENTER_DEVICE(device, memory);
    RETURN_IF(memory->version != MEMORY_V2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    RETURN_IF(getenv("STANDIN_NVML_NO_MEMORY"), NVML_ERROR_NOT_SUPPORTED);
    const unsigned long long all = DEVICE_BYTES - RESERVED_BYTES;
    unsigned long long used = 0;
    read_processes(device, NULL, 0, &used);
    *memory = (nvmlMemory_v2_t){ MEMORY_V2, DEVICE_BYTES, RESERVED_BYTES,
                                 used < all ? all - used : 0, used };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    ENTER_DEVICE(device, count);
    unsigned long long used = 0;
    unsigned int room = infos ? *count : 0;
    *count = read_processes(device, infos, room, &used);
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* All processes are compute processes. */
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos)
{
    ENTER_DEVICE(device, count);
    (void)infos;
    *count = 0;
    return NVML_SUCCESS;
}
