/* What the files of the stand-in libcuda share; none of it is exported. */
#ifndef STANDIN_CUDA_INTERNAL_H
#define STANDIN_CUDA_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "cuda_abi.h"
#include "cuda_activity.h"

#define MAX_DEVICES 16
#define CONTEXT_STACK_DEPTH 32

/* Read once from the environment, by the first cuInit. */
struct settings {
    int devices;
    uint64_t device_bytes;
    uint64_t free_linger_ns;
    double copy_bytes_per_ns;  /* 0: copies take no time */
    int physical[MAX_DEVICES]; /* the device number without CUDA_VISIBLE_DEVICES */
    enum handle_layout { LAYOUT_DRIVER, LAYOUT_OTHER, LAYOUT_TEXT, LAYOUT_WRONG } handle_layout;
};

extern struct settings settings;
extern atomic_bool initialized;

/* Contexts are never returned to malloc: a destroyed one can still be current on another thread,
 * which must get an error and not a dangling pointer. */
struct CUctx_st {
    struct CUctx_st *next;
    CUdevice device;
    uint32_t number; /* as CUPTI has it, from 1 */
    bool primary;
    CUcontext whole;       /* of a green context, the primary one, which has its memory */
    unsigned int retained; /* primary contexts only; under the contexts' lock */
    atomic_bool active;
};

struct thread_state {
    unsigned int depth;
    CUcontext stack[CONTEXT_STACK_DEPTH];
    jmp_buf *jump_target;
};

extern _Thread_local struct thread_state thread_state;

/* Once `settings.devices` has the number of devices: applies CUDA_VISIBLE_DEVICES. */
void devices_setup(void);
void contexts_setup(void);
/* The calling thread's usable context, or the error of a call without one. */
CUresult context_current(CUcontext *context);
/* Whether `context` exists and is not destroyed; the error if it is. */
CUresult context_check(CUcontext context);

/* A context calls these when it is destroyed: its objects are destroyed with it. */
void modules_release_owned(CUcontext context);
void arrays_release_owned(CUcontext context);
void host_release_owned(CUcontext context);
void ipc_release_owned(CUcontext context);
void streams_release_owned(CUcontext context);

/* The stream for `stream` in a call of the calling thread; `null_stream` is the meaning of NULL. */
CUresult stream_resolve(CUstream stream, CUstream null_stream, struct CUstream_st **resolved);
/* Whether `stream` is being captured; if so, the work becomes a node of the graph and must not
 * run. */
bool stream_capture_node(struct CUstream_st *stream);
/* The same for a kernel. */
bool stream_capture_kernel(struct CUstream_st *stream, const char *name);

/* First statement of every exported function. It does not check for cuInit, so
 * that a failure can be armed for cuInit itself. */
#define FAIL_IF_ARMED()                                                                      \
    __attribute__((cleanup(standin_activity_leave), unused)) struct activity_call this_call; \
    standin_activity_enter(&this_call, ACTIVITY_DRIVER, __func__);                           \
    do {                                                                                     \
        int armed_error = standin_take_failure(__func__);                                    \
        if (armed_error)                                                                     \
            return this_call.returned = armed_error;                                         \
    } while (0)

/* As FAIL_IF_ARMED, for the functions that need cuInit to have succeeded. */
#define ENTER_INITIALIZED()                                            \
    FAIL_IF_ARMED();                                                   \
    do {                                                               \
        if (!atomic_load_explicit(&initialized, memory_order_acquire)) \
            return this_call.returned = CUDA_ERROR_NOT_INITIALIZED;    \
    } while (0)

/* As ENTER_INITIALIZED, for the functions that need a current context: `context`. */
#define ENTER_CONTEXT()                                     \
    ENTER_INITIALIZED();                                    \
    CUcontext context;                                      \
    do {                                                    \
        CUresult context_error = context_current(&context); \
        if (context_error)                                  \
            return this_call.returned = context_error;      \
    } while (0)

/* A function and its variant for per-thread default streams. They differ in their names and in the
 * meaning of a NULL stream. `result` is an expression of the parameters, evaluated with a current
 * context. */
#define DEFINE_TWINS(symbol, suffix, parameters, result)      \
    DEFINE_TWIN(symbol, CU_STREAM_LEGACY, parameters, result) \
    DEFINE_TWIN(symbol##suffix, CU_STREAM_PER_THREAD, parameters, result)

#define DEFINE_TWIN(symbol, null, parameters, result) \
    CUresult symbol parameters                        \
    {                                                 \
        ENTER_CONTEXT();                              \
        const CUstream null_stream = (null);          \
        (void)null_stream;                            \
        return this_call.returned = (result);         \
    }

static inline bool is_device(CUdevice device)
{
    return device >= 0 && device < settings.devices;
}

/* ---- time -------------------------------------------------------------- */

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void spin_until_ns(uint64_t end_ns)
{
    while (now_ns() < end_ns)
        continue;
}

/* ---- handles ----------------------------------------------------------- */

/* The objects behind the driver's opaque handles. A released handle is the next one of its kind to
 * be reused: a tracer's record of it by address is then about another object. All functions are
 * thread-safe. */

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

/* ---- device memory ----------------------------------------------------- */

/* The device memory of the stand-in driver: addresses without memory behind them. All functions are
 * thread-safe. */

/* Before any other call: every device gets `device_bytes` of memory. */
void blocks_setup(uint64_t device_bytes);

/* A block of `bytes` (not 0) on `device`, belonging to `owner` (not NULL).
 * Returns false when the device has not that much left. */
bool blocks_take(const void *owner, int device, uint64_t bytes, uint64_t *address);

/* Returns false when no live block begins at `address`. */
bool blocks_release(uint64_t address);

/* The same for blocks that only their owner frees: blocks_release does not know them. The owner's
 * end releases them too. */
bool blocks_take_inner(const void *owner, int device, uint64_t bytes, uint64_t *address);
bool blocks_release_inner(uint64_t address);

/* The same, with its owner and size. */
bool blocks_release_from(uint64_t address, const void **owner, uint64_t *bytes);

/* The live block that `address` lies in. Returns false if there is none. */
struct block_range {
    uint64_t address, bytes;
    const void *owner;
    int device;
};
bool blocks_find(uint64_t address, struct block_range *range);

/* Memory of a device without an address here. Returns false when the device has not that much
 * left. */
bool blocks_charge(int device, uint64_t bytes);
void blocks_uncharge(int device, uint64_t bytes);

/* The memory at the `bytes` bytes (at least 1) from `address`. */
enum block_state {
    BLOCK_NONE, /* nothing that was ever device memory */
    BLOCK_DEAD, /* device memory that is free, or not all in one live block */
    BLOCK_LIVE,
};
enum block_state blocks_state(uint64_t address, uint64_t bytes);

/* Releases all blocks of `owner`. */
void blocks_release_owned(const void *owner);

/* Bytes left on `device`. */
uint64_t blocks_left(int device);

/* ---- addresses --------------------------------------------------------- */

/* Address space beside that of the block table: for reservations, memory of other processes, and
 * graphs. Released ranges are reused first. All functions are thread-safe. */

#define SPACE_STEP (2ull << 20) /* of addresses and of sizes */

/* `bytes` (any number but 0, rounded up) of unused addresses; 0: there are no
 * more. At `hint`, if that is free and not 0. */
uint64_t space_take(uint64_t bytes, uint64_t hint);
/* `bytes` as they were when the space was allocated. */
void space_release(uint64_t address, uint64_t bytes);

/* ---- sharing ----------------------------------------------------------- */

/* Export of memory to other processes: a file descriptor that carries its description. It can be
 * inherited, or sent through a socket. */

enum share_kind { SHARE_MEMORY = 1, SHARE_POOL };

struct share {
    uint32_t kind;
    int32_t location_type, location_id;
    int32_t pid; /* the exporter's */
    uint64_t bytes;
    uint64_t handle; /* the exporter's */
};

/* A new file descriptor, or -1. */
int share_export(const struct share *share);
/* Whether `fd` carries an object of `kind`; it stays open. */
bool share_import(int fd, enum share_kind kind, struct share *share);

/* ---- kernels ----------------------------------------------------------- */

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

/* ---- graphs ------------------------------------------------------------ */

struct CUgraph_st {
    struct handle handle;
    const struct CUstream_st *origin;  /* the stream that began its capture, and must end it */
    const struct thread_state *thread; /* and its thread; NULL: any */
    _Atomic(size_t) nodes;
    struct graph_memory *memory; /* its memory nodes; NULL: none */
    /* The number of kernel nodes, and the name of the last. */
    _Atomic(uint32_t) kernels;
    _Atomic(const char *) kernel_name;
};

_Static_assert(sizeof(struct CUgraph_st) <= HANDLE_BYTES, "a graph must fit its slot");

/* The memory that nodes of graphs allocate and free. */

struct graph_memory;

/* The graph that the stream is captured into, or NULL. */
struct CUgraph_st *stream_capture(struct CUstream_st *stream);

/* Add a node. An address is chosen at once; it is live after a launch. */
CUresult graph_add_allocation(struct CUgraph_st *graph, int device, size_t bytes,
                              CUdeviceptr *address);
CUresult graph_add_free(struct CUgraph_st *graph, CUdeviceptr address);

/* A copy of the nodes for an executable graph; and its destruction. */
struct graph_memory *graph_memory_copy(const struct graph_memory *memory);
void graph_memory_delete(struct graph_memory *memory);
/* Runs the nodes. */
CUresult graph_memory_launch(const struct graph_memory *memory, bool free_first);
/* Frees live memory of a graph, outside any graph. */
bool graph_memory_release(CUdeviceptr address);

/* ---- pools ------------------------------------------------------------- */

/* Pools of stream-ordered memory, and the memory nodes of graphs, for the calls that free
 * memory. */

/* Its blocks are the block table's, with the pool as their owner: they belong to
 * no context. Counts are under the pools' lock. */
struct CUmemPoolHandle_st {
    struct handle handle;
    int16_t device; /* -1: on the host */
    bool destroyed; /* and kept until its last block is freed */
    bool imported;
    uint32_t blocks;
    uint64_t used, used_high;
    uint64_t reserved, reserved_high;
    uint64_t threshold;
};

_Static_assert(sizeof(struct CUmemPoolHandle_st) <= HANDLE_BYTES, "a pool must fit its slot");

/* Whether it is a valid pool. */
bool pool_is(CUmemoryPool pool);
CUresult pool_new(CUmemoryPool *pool, int device, bool imported);
/* The current pool of the device. */
CUmemoryPool pool_current(CUdevice device);
CUresult pool_take(CUmemoryPool pool, size_t bytes, CUdeviceptr *address);

/* Common to all frees: frees a block of the block table, whoever owns it, or live memory of a
 * graph. False if there is none at `address`. */
bool memory_release(CUdeviceptr address, bool asynchronous);

/* ---- variables --------------------------------------------------------- */

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

/* ---- physical memory --------------------------------------------------- */

#define GRANULARITY (2ull << 20)

/* It exists while it has references or mappings; the handle is valid while it has references. All
 * under `vmm_lock`. */
struct physical {
    struct handle handle;
    uint64_t bytes;
    uint32_t references, mappings;
    bool imported; /* another process's: takes no memory here */
    CUmemLocation location;
    int handle_types;
};

/* Makes a part of a device the device; false if there is no such location. */
bool location_resolve(CUmemLocation *location);

extern pthread_mutex_t vmm_lock;

/* The object of a handle with references; NULL if it is none. */
struct physical *physical_of(CUmemGenericAllocationHandle handle);
/* Frees memory with neither references nor mappings. */
void physical_settle(struct physical *physical);
/* The mapping at `address`; NULL if there is none. */
struct physical *physical_at(CUdeviceptr address);

/* ---- copies and sets --------------------------------------------------- */

/* What copies and sets share: when they run, and their arguments. */

/* Whether a call waits for its transfer, or the stream that it is queued on. */
struct order {
    bool blocking;
    CUstream stream, null_stream;            /* `stream` of an asynchronous call */
    CUcontext destination_peer, source_peer; /* of a copy between devices */
};

/* Arguments for the bodies of DEFINE_TWINS. */
#define BLOCKING ((struct order){ .blocking = true, .null_stream = null_stream })
#define ON(stream_) ((struct order){ .stream = (stream_), .null_stream = null_stream })

/* The stream must exist; work on a captured one is `captured`. */
CUresult order_check(struct order order, bool *captured);
/* Whether a stand-in CUPTI is subscribed; then `activity` has the location. */
bool order_is_told(struct order order, struct activity *activity);

/* ---- activity ---------------------------------------------------------- */

extern _Atomic(const struct activity_listener *) activity_listener;

/* As in the real driver, the library named by CUDA_INJECTION64_PATH is loaded and called before the
 * first cuInit returns. */
void activity_inject(void);
/* The correlation id, and the time if none is given, are those of the call. */
void activity_tell(struct activity activity);
void activity_tell_end(uint32_t context);
void activity_forget(void);
/* The same text, for as long as the process lives. */
const char *activity_keep(const char *text);
/* Reports the contexts that are in use. */
void contexts_tell(void);
/* CUPTI's number of a stream. */
uint32_t stream_number(struct CUstream_st *stream);

static inline bool activity_is_wanted(void)
{
    return atomic_load_explicit(&activity_listener, memory_order_relaxed) != NULL;
}

/* An allocation or a release. */
static inline void tell_memory(bool release, uint32_t memory_kind, uint64_t address, uint64_t bytes,
                               bool asynchronous)
{
    CUcontext context;
    if (!activity_is_wanted() || context_current(&context))
        return;
    activity_tell((struct activity){ .kind = ACTIVITY_MEMORY,
                                     .device = (uint32_t)context->device,
                                     .context = context->number,
                                     .operation = release ? 2 : 1,
                                     .memory_kind = memory_kind,
                                     .address = address,
                                     .bytes = bytes,
                                     .asynchronous = asynchronous });
}

enum { MEMORY_PINNED = 2, MEMORY_DEVICE = 3, MEMORY_MANAGED = 5 };

#endif
