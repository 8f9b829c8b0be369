/* The objects behind the driver's opaque handles. A released handle is the next one of its kind to
 * be reused: a tracer's record of it by address is then about another object. All functions are
 * thread-safe. */
#ifndef STANDIN_CUDA_HANDLES_H
#define STANDIN_CUDA_HANDLES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum handle_kind {
    HANDLE_FREE,
    HANDLE_MODULE,
    HANDLE_LIBRARY,
    HANDLE_FUNCTION, /* a CUfunction */
    HANDLE_KERNEL,   /* a CUkernel */
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_GRAPH,
    HANDLE_GRAPH_EXEC,
    HANDLE_PHYSICAL, /* a CUmemGenericAllocationHandle */
    HANDLE_POOL,
    HANDLE_EXTERNAL,
    HANDLE_ARRAY,
    HANDLE_MIPMAPPED_ARRAY,
    HANDLE_KINDS,
};

/* Every object begins with it, and is no larger than HANDLE_BYTES. */
struct handle {
    _Atomic(uint32_t) kind;
    uint32_t next_free; /* number + 1; 0 ends the list */
};

#define HANDLE_BYTES 64
#define MAX_HANDLES (1u << 21) /* of one kind */

/* An object of zeros but for its header; NULL when there are too many. */
void *handle_take(enum handle_kind kind);
/* `object` must be live. */
void handle_release(void *object);
/* Whether `handle` is a live object of `kind`. Any pointer is allowed. */
bool handle_is(const void *handle, enum handle_kind kind);
/* Calls `visit` with every live object of `kind`. */
void handles_each(enum handle_kind kind, void (*visit)(void *object, void *context), void *context);

#endif
