/* The stand-in runtime's way to the driver. */
#ifndef STANDIN_CUDART_DRIVER_H
#define STANDIN_CUDART_DRIVER_H

#include "cuda_abi.h"

/* The driver's functions, as cuGetProcAddress_v2 gave them. */
struct driver {
    __typeof__(&cuInit) init;
    __typeof__(&cuDeviceGetCount) device_get_count;
    __typeof__(&cuDevicePrimaryCtxRetain) primary_retain;
    __typeof__(&cuDevicePrimaryCtxReset_v2) primary_reset;
    __typeof__(&cuCtxGetCurrent) get_current;
    __typeof__(&cuCtxSetCurrent) set_current;
    __typeof__(&cuCtxGetDevice_v2) get_device;
    __typeof__(&cuCtxSynchronize) synchronize;
    __typeof__(&cuMemAlloc_v2) mem_alloc;
    __typeof__(&cuMemFree_v2) mem_free;
    __typeof__(&cuMemGetInfo_v2) mem_get_info;
    /* The stand-in's own; NULL over a driver that is not the stand-in. */
    __typeof__(&standin_take_failure) take_failure;
};

extern struct driver driver;

/* Loads and initialises the driver on the first call; a cudaError_t, the same
 * one on every call. */
int driver_load(void);

#endif
