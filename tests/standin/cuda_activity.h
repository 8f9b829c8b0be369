/* Activity that the stand-in driver reports to a stand-in CUPTI: calls, and the GPU work. Without a
 * subscriber nothing is reported, at next to no cost. */
#ifndef STANDIN_CUDA_ACTIVITY_H
#define STANDIN_CUDA_ACTIVITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CUpti_ActivityKind, the kinds that a driver reports. */
enum activity_kind {
    ACTIVITY_MEMCPY = 1,
    ACTIVITY_MEMSET = 2,
    ACTIVITY_DRIVER = 4,
    ACTIVITY_RUNTIME = 5,
    ACTIVITY_DEVICE = 8,
    ACTIVITY_CONTEXT = 9,
    ACTIVITY_KERNEL = 10,
    ACTIVITY_MEMCPY2 = 22,
    ACTIVITY_STREAM = 37,
    ACTIVITY_SYNC = 38,
    ACTIVITY_MEMORY = 49,
    ACTIVITY_POOL = 50,
    ACTIVITY_GRAPH = 51,
};

/* Fields that a kind does not use are 0. */
struct activity {
    enum activity_kind kind;
    uint32_t correlation;
    uint32_t device, context, stream;
    uint64_t start_ns, duration_ns; /* of a call: start and duration */
    /* Calls. */
    const char *function;
    uint32_t tid;
    int result;
    /* Kernels and graphs. */
    const char *name;
    uint32_t grid[3], block[3], shared_bytes;
    uint64_t graph_node;
    uint32_t graph;
    /* Copies, sets, memory, pools. */
    uint64_t bytes, address;
    uint32_t value;
    uint8_t copy_kind, source_kind, destination_kind; /* as CUPTI numbers them */
    bool asynchronous;
    uint32_t source_device, source_context, destination_device, destination_context;
    uint32_t operation, memory_kind;
    /* Waits: CUpti_ActivitySynchronizationType. */
    uint32_t wait;
};

/* A stand-in CUPTI. `now` is its clock; `record` takes an activity; `context_ends` is called before
 * a context is destroyed. */
struct activity_listener {
    uint64_t (*now)(void);
    void (*record)(const struct activity *activity);
    void (*context_ends)(uint32_t context);
};

/* A running call; with the runtime's around it, both have its correlation id. */
struct activity_call {
    const char *function; /* NULL: no subscriber */
    uint64_t start_ns;
    uint32_t correlation, outer;
    int layer, returned;
};

#pragma GCC visibility push(default)

/* NULL unsubscribes. Reports existing devices or contexts if `kind` is about those. */
void standin_activity_attach(const struct activity_listener *listener, int kind);
void standin_activity_enter(struct activity_call *call, int layer, const char *function);
void standin_activity_leave(struct activity_call *call);

#pragma GCC visibility pop

#endif
