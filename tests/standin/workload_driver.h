/* What the files of the driver backend share. */
#ifndef STANDIN_WORKLOAD_DRIVER_H
#define STANDIN_WORKLOAD_DRIVER_H

#include "cuda_abi.h"
#include "workload_backend.h"

/* The context that the workload uses on `device`, created at its first use. */
int driver_context(int device, CUcontext *context);

/* References of a device's primary context; see struct context_api. */
int driver_retain_primary(int device);
int driver_release_primary(int device, bool *ended);

/* The module of the builtin kernels and variables, if it is loaded. */
CUmodule driver_builtin_module(int *device, void **context);

extern const struct work_api driver_work;
extern const struct memory_api driver_memory;
extern const struct pool_api driver_pools;
extern const struct copy_method driver_copies[];
extern const struct set_method driver_sets[];

#endif
