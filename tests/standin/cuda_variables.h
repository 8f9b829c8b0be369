/* The variables of modules and libraries. The caller has the modules' lock. */
#ifndef STANDIN_CUDA_VARIABLES_H
#define STANDIN_CUDA_VARIABLES_H

#include "cuda_internal.h"

struct variable;

/* Whether a line of an image is a variable, and not a kernel's name. */
bool variable_is(const char *line);
/* Adds the variable of `line`, which stays in place, to `list`. */
CUresult variable_add(struct variable **list, const char *line);
/* The variable `name` in `context`, which gets its memory at the first query. `address` and `bytes`
 * may be NULL. */
CUresult variable_find(struct variable *list, const char *name, bool managed_only,
                       CUcontext context, CUdeviceptr *address, size_t *bytes);
/* Frees all memory and all variables. */
void variables_delete(struct variable *list);
/* Drops the variables' memory in `context`, which was freed. */
void variables_forget(struct variable *list, CUcontext context);

#endif
