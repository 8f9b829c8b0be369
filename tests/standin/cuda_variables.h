/* The variables of modules and libraries. The caller has the modules' lock. */
#ifndef STANDIN_CUDA_VARIABLES_H
#define STANDIN_CUDA_VARIABLES_H

#include "cuda_internal.h"

struct variable;

/* Whether a line of an image is about a variable, and not a kernel's name. */
bool variable_is(const char *line);
/* Adds the variable of `line`, which stays in place, to `list`. */
CUresult variable_add(struct variable **list, const char *line);
/* The variable `name` as `context` sees it, which gets its memory when it is first
 * asked for. `address` and `bytes` may be NULL. */
CUresult variable_find(struct variable *list, const char *name, bool managed_only,
                       CUcontext context, CUdeviceptr *address, size_t *bytes);
/* Gives back all memory and all variables. */
void variables_delete(struct variable *list);
/* The memory that variables have in `context` has gone. */
void variables_forget(struct variable *list, CUcontext context);

#endif
