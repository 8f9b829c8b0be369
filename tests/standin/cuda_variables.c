/*
 * Stand-in libcuda: the variables of modules and libraries.
 *
 * A variable has an address in every context that asks for it. The real driver
 * takes the memory when it loads the module; here it is taken when the address
 * is first asked for, since nothing could know of it before.
 */

#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

/* In one context. */
struct instance {
    struct instance *next;
    CUcontext context;
    uint64_t address;
};

struct variable {
    struct variable *next;
    const char *line; /* NAME=BYTES or NAME=mBYTES */
    size_t name_length;
    size_t bytes;
    bool managed;
    struct instance *instances;
};

bool variable_is(const char *line)
{
    return strchr(line, '=') != NULL;
}

CUresult variable_add(struct variable **list, const char *line)
{
    const char *size = strchr(line, '=') + 1;
    struct variable *variable = calloc(1, sizeof *variable);
    if (!variable)
        return CUDA_ERROR_OUT_OF_MEMORY;
    variable->line = line;
    variable->name_length = (size_t)(size - 1 - line);
    variable->managed = *size == 'm';
    char *end;
    variable->bytes = strtoull(size + variable->managed, &end, 0);
    variable->next = *list;
    *list = variable;
    return *end || variable->bytes == 0 ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

static struct instance *instance_in(struct variable *variable, CUcontext context)
{
    struct instance *instance = variable->instances;
    while (instance && instance->context != context)
        instance = instance->next;
    if (instance || !(instance = calloc(1, sizeof *instance)))
        return instance;
    if (!blocks_take_inner(context, context->device, variable->bytes, &instance->address)) {
        free(instance);
        return NULL;
    }
    instance->context = context;
    instance->next = variable->instances;
    variable->instances = instance;
    return instance;
}

CUresult variable_find(struct variable *list, const char *name, bool managed_only,
                       CUcontext context, CUdeviceptr *address, size_t *bytes)
{
    struct variable *variable = list;
    while (variable && (strncmp(variable->line, name, variable->name_length) ||
                        name[variable->name_length] || (managed_only && !variable->managed)))
        variable = variable->next;
    if (!variable)
        return CUDA_ERROR_NOT_FOUND;
    const struct instance *instance = instance_in(variable, context);
    if (!instance)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (address)
        *address = instance->address;
    if (bytes)
        *bytes = variable->bytes;
    return CUDA_SUCCESS;
}

static void delete_instances(struct variable *variable)
{
    for (struct instance *next, *i = variable->instances; i; i = next) {
        next = i->next;
        blocks_release_inner(i->address);
        free(i);
    }
}

void variables_delete(struct variable *list)
{
    for (struct variable *next; list; list = next) {
        next = list->next;
        delete_instances(list);
        free(list);
    }
}

void variables_forget(struct variable *list, CUcontext context)
{
    for (struct variable *variable = list; variable; variable = variable->next)
        for (struct instance **link = &variable->instances; *link;) {
            struct instance *instance = *link;
            if (instance->context != context) {
                link = &instance->next;
                continue;
            }
            *link = instance->next;
            free(instance);
        }
}
