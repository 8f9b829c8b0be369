/* The kernels and variables that commands can name. */
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

struct loaded_variable {
    const struct module_method *method;
    void *module;
    int device;    /* that it has this address on, and in */
    void *context; /* which context; see thread_context */
    bool managed;
    size_t bytes;
};

/* The variable of a loaded module, the last loaded first. */
bool variable_named(const char *name, struct loaded_variable *found);

/* The kernels of the module that was loaded last; NULL if it was unloaded, or
 * there is none. */
const struct kernel *last_module(size_t *count);

#endif
