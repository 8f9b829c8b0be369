/* What the files of the stand-in libcuda share; none of it is exported. */
#ifndef STANDIN_CUDA_INTERNAL_H
#define STANDIN_CUDA_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_abi.h"
#include "cuda_activity.h"

#define MAX_DEVICES 16
#define CONTEXT_STACK_DEPTH 32
#define DRIVER_VERSION 13000

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

/* Counts calls from now on, for standin_calls. */
void calls_count(void);

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

/* A function and its variant for per-thread default streams. They differ in their names and in the
 * meaning of a NULL stream. `result` is an expression of the parameters, evaluated with a current
 * context. */
#define DEFINE_TWINS(symbol, suffix, parameters, result)      \
    DEFINE_TWIN(symbol, CU_STREAM_LEGACY, parameters, result) \
    DEFINE_TWIN(symbol##suffix, CU_STREAM_PER_THREAD, parameters, result)

#define DEFINE_TWIN(symbol, null, parameters, result)                         \
    CUresult symbol parameters                                                \
    {                                                                         \
        ENTER_INITIALIZED();                                                  \
        const CUstream null_stream = (null);                                  \
        CUcontext context;                                                    \
        CUresult context_error = context_current(&context);                   \
        (void)null_stream;                                                    \
        return this_call.returned = context_error ? context_error : (result); \
    }

static inline bool is_device(CUdevice device)
{
    return device >= 0 && device < settings.devices;
}

#endif
