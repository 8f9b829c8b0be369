/* Context memory, as the workload requests it from its backend. */
#ifndef STANDIN_WORKLOAD_MEMORY_API_H
#define STANDIN_WORKLOAD_MEMORY_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct array_shape {
    size_t width, height, depth; /* in elements; 0 where there is no such side */
    unsigned int channels;
    unsigned int bits;   /* of a channel, an unsigned integer; or 0 and */
    unsigned int format; /* a CUarray_format */
    unsigned int flags;
    unsigned int levels; /* of a mipmapped array */
};

/* Variables that every program has without loading a module. */
enum { BUILTIN_VARIABLES = 2 };
struct builtin_variable {
    const char *name;
    size_t bytes;
};
extern const struct builtin_variable builtin_variables[BUILTIN_VARIABLES];

/* The effect of a context command on the calling thread, and on `context`. */
struct context_api {
    int (*create)(void **context, int device); /* and pushes it */
    int (*destroy)(void *context);
    int (*push)(void *context);
    int (*pop)(void);
    int (*set)(void *context);
    int (*retain_primary)(int device);
    /* `ended` is whether that was the last of the workload's references, so that all of the
     * context's memory was freed; a new one is then current. */
    int (*release_primary)(int device, bool *ended);
};

/* All functions return 0 or the CUDA error. */
struct memory_api {
    int (*pitched)(void **address, size_t *pitch, size_t width, size_t height);
    int (*pitched_3d)(void **address, size_t *pitch, size_t width, size_t height, size_t depth);
    int (*managed)(void **address, size_t bytes);
    int (*pinned)(void **address, size_t bytes);
    int (*host_alloc)(void **address, size_t bytes);
    int (*pinned_free)(void *address);
    int (*make_known)(void *address, size_t bytes); /* registers host memory */
    int (*forget_known)(void *address);
    int (*array)(void **array, const struct array_shape *shape);
    int (*array_free)(void *array);
    int (*mipmap)(void **array, const struct array_shape *shape);
    int (*mipmap_free)(void *array);
    /* The address of builtin_variables[number], and its context if that is not the current one. */
    int (*builtin_variable)(int number, void **address, int *device, void **context);
    const struct context_api *contexts; /* NULL: the backend cannot select contexts */
};

#endif
