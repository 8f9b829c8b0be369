/* What the files of the driver backend share. */
#ifndef STANDIN_WORKLOAD_DRIVER_H
#define STANDIN_WORKLOAD_DRIVER_H

#include "workload_backend.h"

/* The context that the workload uses on `device`, created at its first use. */
int driver_context(int device, CUcontext *context);

extern const struct copy_method driver_copies[];
extern const struct set_method driver_sets[];

#endif
