/* Kernels as a launch sees them. */
#ifndef STANDIN_CUDA_MODULE_H
#define STANDIN_CUDA_MODULE_H

#include <stddef.h>

#include "cuda_handles.h"

/* A CUfunction or a CUkernel. As in the real driver (580), the eight bytes at
 * handle + 8 point to the kernel's mangled name: tracers read it there. It is
 * not documented, so STANDIN_HANDLE_LAYOUT can put something else in its place;
 * the stand-in itself uses `name`. */
struct kernel {
    struct handle handle;
    const char *visible_name;
    const char *name;
    struct CUfunc_st *function; /* of a CUkernel: its CUfunction, once asked for */
};

_Static_assert(offsetof(struct kernel, visible_name) == 8, "where the driver has the name");
_Static_assert(sizeof(struct kernel) <= HANDLE_BYTES, "a kernel must fit its slot");

#endif
