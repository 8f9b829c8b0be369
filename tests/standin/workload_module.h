/* The kernels that commands can name. */
#ifndef STANDIN_WORKLOAD_MODULE_H
#define STANDIN_WORKLOAD_MODULE_H

#include "workload.h"

struct kernel {
    char *name;
    const void *kernel; /* what to launch */
};

/* A kernel of the loaded modules, the last loaded first; else one that every
 * program has, by its name or its number. Leaves a reason in `reply` and returns
 * false. */
bool kernel_named(const char *name, const void **kernel, struct reply *reply);

/* The kernels of the module that was loaded last; NULL if it was unloaded, or
 * there is none. */
const struct kernel *last_module(size_t *count);

#endif
