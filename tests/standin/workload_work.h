/*
 * Work for the device, as the workload asks its backend for it: kernels,
 * streams, graphs, copies and sets.
 *
 * Commands choose a function by its name. So what a backend can call is a table
 * of methods, one row an API function, in the order of preference.
 */
#ifndef STANDIN_WORKLOAD_WORK_H
#define STANDIN_WORKLOAD_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- launches ---------------------------------------------------------- */

/* Kernels that every program has without loading a module. */
enum { BUILTIN_KERNELS = 4 };
extern const char *const builtin_kernels[BUILTIN_KERNELS];
/* The image of a module with them. */
extern const char builtin_image[];

struct launch {
    const void *kernel;
    unsigned int grid[3], block[3];
    void *stream;
};

struct launch_method {
    const char *name; /* for `via=`, beside the function's own */
    const char *function;
    int (*call)(const struct launch *launch);
};

/* A way to get the kernels of a module. */
struct module_method {
    const char *name;
    int (*load)(void **module, const char *image);
    int (*kernel)(const void **kernel, void *module, const char *name);
    int (*unload)(void *module);
    /* Of the variable `name`. `address` and `bytes` may be NULL. */
    int (*global)(void *module, const char *name, bool managed, uint64_t *address, size_t *bytes);
};

/* ---- copies and sets --------------------------------------------------- */

enum copy_kind {
    COPY_H2D,
    COPY_D2H,
    COPY_D2D,
    COPY_H2H,
    COPY_DEFAULT_H2D,
    COPY_DEFAULT_D2H,
    COPY_DEFAULT_D2D,
    COPY_PEER,
    COPY_2D_H2D,
    COPY_2D_D2H,
    COPY_2D_D2D,
    COPY_3D_H2D,
    COPY_3D_D2H,
    COPY_3D_D2D,
    COPY_BATCH,
    COPY_BATCH_3D,
    COPY_BATCH_3D_ARRAY,
    COPY_H2A,
    COPY_A2H,
    COPY_D2A,
    COPY_A2D,
    COPY_A2A,
    COPY_KINDS,
};

#define KIND(name) (1u << COPY_##name)

enum place { HOST, DEVICE, ARRAY };

struct copy {
    enum copy_kind kind;
    enum place dst_place, src_place;
    void *dst, *src;
    size_t bytes;
    /* Of a copy of rows, on both sides; width * height * depth == bytes. */
    size_t pitch, width, height, depth;
    int dst_device, src_device; /* of a copy between peers */
    size_t parts;               /* of a batch, which is one call */
    void *stream;
};

enum {
    BATCH_PARTS = 4, /* unless the command says otherwise */
    MOST_BATCH_PARTS = 300,
};

struct copy_method {
    const char *function;
    unsigned int kinds; /* KIND()s that it can do */
    int (*call)(const struct copy *copy);
};

struct set {
    void *address;
    size_t bytes;
    void *stream;
};

struct set_method {
    const char *function;
    unsigned int element_bytes;
    int (*call)(const struct set *set);
};

/* ---- the backend ------------------------------------------------------- */

/* All functions return 0 or the CUDA error; each table ends with a row of
 * NULLs. */
struct work_api {
    const struct module_method *modules;
    const struct launch_method *launches;
    const struct copy_method *copies;
    const struct set_method *sets;

    /* The function to launch for builtin_kernels[number]. */
    int (*builtin)(int number, const void **kernel);
    /* The handle under which the driver sees `kernel` launched. */
    int (*handle)(const void *kernel, const void **handle);
    /* After the current device was reset. */
    void (*forget)(void);

    int (*pinned_alloc)(void **address, size_t bytes);
    int (*pinned_free)(void *address);

    int (*stream_create)(void **stream);
    int (*stream_destroy)(void *stream);
    int (*stream_synchronize)(void *stream);
    int (*event_create)(void **event);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    /* `stream` then waits for the work that `event` was recorded on, and joins its capture, too. */
    int (*stream_wait)(void *stream, void *event);
    int (*capture_begin)(void *stream);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_nodes)(void *graph, size_t *count);
    int (*graph_instantiate)(void **exec, void *graph);
    int (*graph_launch)(void *exec, void *stream);
    int (*graph_destroy)(void *graph, void *exec);
};

#endif
