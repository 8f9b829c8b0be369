/*
 * Stand-in libcuda: streams, events, and the capture of streams into graphs.
 *
 * Work on a stream takes no time, so that there is nothing to wait for; what a
 * stream has is whether it is being captured.
 */
#include <pthread.h>
#include <stdint.h>

#include "cuda_internal.h"

/* For one that the program made; the default streams have the zeros. */
struct CUstream_st {
    struct handle handle;
    CUcontext owner;
    _Atomic(struct CUgraph_st *) capture; /* NULL: work runs at once */
    _Atomic(uint32_t) number;             /* as CUPTI has it; 0: not yet requested */
};

struct CUevent_st {
    struct handle handle;
    struct CUgraph_st *capture; /* of the stream where it was last recorded */
};

_Static_assert(sizeof(struct CUstream_st) <= HANDLE_BYTES, "a stream must fit its slot");

/* The real legacy stream of a first context has this number. */
static struct CUstream_st legacy_stream = { .number = 7 };
static _Thread_local struct CUstream_st thread_stream;
/* Beginning, joining and ending captures. Launches only look at `capture`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

CUresult stream_resolve(CUstream stream, CUstream null_stream, struct CUstream_st **resolved)
{
    if (!stream)
        stream = null_stream;
    if (stream == CU_STREAM_LEGACY)
        *resolved = &legacy_stream;
    else if (stream == CU_STREAM_PER_THREAD)
        *resolved = &thread_stream;
    else if (handle_is(stream, HANDLE_STREAM))
        *resolved = stream;
    else
        return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

struct CUgraph_st *stream_capture(struct CUstream_st *stream)
{
    return atomic_load_explicit(&stream->capture, memory_order_acquire);
}

bool stream_capture_node(struct CUstream_st *stream)
{
    struct CUgraph_st *graph = stream_capture(stream);
    if (graph)
        atomic_fetch_add(&graph->nodes, 1);
    return graph != NULL;
}

bool stream_capture_kernel(struct CUstream_st *stream, const char *name)
{
    struct CUgraph_st *graph = stream_capture(stream);
    if (graph) {
        atomic_fetch_add(&graph->nodes, 1);
        atomic_fetch_add(&graph->kernels, 1);
        if (activity_is_wanted())
            atomic_store(&graph->kernel_name, activity_keep(name));
    }
    return graph != NULL;
}

uint32_t stream_number(struct CUstream_st *stream)
{
    static _Atomic(uint32_t) last = 12;
    uint32_t number = atomic_load(&stream->number), none = 0;
    if (number)
        return number;
    number = atomic_fetch_add(&last, 1) + 1;
    return atomic_compare_exchange_strong(&stream->number, &none, number) ? number : none;
}

static void tell_wait(struct CUstream_st *stream, uint32_t wait)
{
    CUcontext context;
    if (activity_is_wanted() && !context_current(&context))
        activity_tell((struct activity){ .kind = ACTIVITY_SYNC,
                                         .context = context->number,
                                         .stream = stream_number(stream),
                                         .wait = wait });
}

static void release_if_owned(void *object, void *context)
{
    struct CUstream_st *stream = object;
    if (stream->owner == context)
        handle_release(stream);
}

void streams_release_owned(CUcontext context)
{
    handles_each(HANDLE_STREAM, release_if_owned, context);
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    ENTER_CONTEXT();
    if (!stream || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream taken = handle_take(HANDLE_STREAM);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    taken->owner = context;
    *stream = taken;
    if (activity_is_wanted())
        activity_tell((struct activity){ .kind = ACTIVITY_STREAM,
                                         .context = context->number,
                                         .stream = stream_number(taken),
                                         .value = flags });
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    ENTER_INITIALIZED();
    if (!handle_is(stream, HANDLE_STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    handle_release(stream);
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUstream stream, CUstream null_stream)
{
    struct CUstream_st *resolved;
    CUresult error = stream_resolve(stream, null_stream, &resolved);
    if (!error && atomic_load(&resolved->capture))
        error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!error)
        tell_wait(resolved, 3);
    return error;
}

static CUresult record(CUevent event, CUstream stream, CUstream null_stream)
{
    struct CUstream_st *resolved;
    if (!handle_is(event, HANDLE_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult error = stream_resolve(stream, null_stream, &resolved);
    if (!error)
        event->capture = atomic_load(&resolved->capture);
    return error;
}

/* A stream that waits for an event of a captured stream joins its capture. */
static CUresult wait_event(CUstream stream, CUevent event, CUstream null_stream)
{
    struct CUstream_st *resolved;
    if (!handle_is(event, HANDLE_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult error = stream_resolve(stream, null_stream, &resolved);
    if (!error)
        tell_wait(resolved, 2);
    if (error || !event->capture)
        return error;
    if (resolved == &legacy_stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    struct CUgraph_st *capture = atomic_load(&resolved->capture);
    if (!capture)
        atomic_store(&resolved->capture, event->capture);
    else if (capture != event->capture)
        error = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    pthread_mutex_unlock(&lock);
    return error;
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode, CUstream null_stream)
{
    struct CUstream_st *resolved;
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult error = stream_resolve(stream, null_stream, &resolved);
    if (error)
        return error;
    if (resolved == &legacy_stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    struct CUgraph_st *graph = NULL;
    if (atomic_load(&resolved->capture))
        error = CUDA_ERROR_ILLEGAL_STATE;
    else if (!(graph = handle_take(HANDLE_GRAPH)))
        error = CUDA_ERROR_OUT_OF_MEMORY;
    if (!error) {
        graph->origin = resolved;
        graph->thread = mode == CU_STREAM_CAPTURE_MODE_RELAXED ? NULL : &thread_state;
        atomic_store_explicit(&resolved->capture, graph, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* Work goes into a command list of a graphics API; the graph is dropped with it. */
static CUresult begin_cig(CUstream stream, CUstreamCigCaptureParams *params, CUstream null_stream)
{
    return params ? begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED, null_stream)
                  : CUDA_ERROR_INVALID_VALUE;
}

static void leave_capture(void *object, void *graph)
{
    struct CUstream_st *stream = object;
    if (atomic_load(&stream->capture) == graph)
        atomic_store(&stream->capture, NULL);
}

static void forget_capture(void *object, void *graph)
{
    struct CUevent_st *event = object;
    if (event->capture == graph)
        event->capture = NULL;
}

static CUresult end_capture(CUstream stream, CUgraph *result, CUstream null_stream)
{
    struct CUstream_st *resolved;
    CUresult error = stream_resolve(stream, null_stream, &resolved);
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    struct CUgraph_st *graph = atomic_load(&resolved->capture);
    if (!result)
        error = CUDA_ERROR_INVALID_VALUE;
    else if (!graph)
        error = CUDA_ERROR_ILLEGAL_STATE;
    else if (graph->origin != resolved)
        error = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    else if (graph->thread && graph->thread != &thread_state)
        error = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (!error) {
        atomic_store(&resolved->capture, NULL);
        leave_capture(&thread_stream, graph);
        handles_each(HANDLE_STREAM, leave_capture, graph);
        handles_each(HANDLE_EVENT, forget_capture, graph);
        *result = graph;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static CUresult end_cig(CUstream stream, CUstream null_stream)
{
    CUgraph graph;
    CUresult error = end_capture(stream, &graph, null_stream);
    if (!error)
        handle_release(graph);
    return error;
}

DEFINE_TWINS(cuStreamBeginCaptureToCig, _ptsz, (CUstream stream, CUstreamCigCaptureParams *params),
             begin_cig(stream, params, null_stream))

DEFINE_TWINS(cuStreamEndCaptureToCig, _ptsz, (CUstream stream), end_cig(stream, null_stream))

DEFINE_TWINS(cuStreamSynchronize, _ptsz, (CUstream stream), synchronize(stream, null_stream))

DEFINE_TWINS(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned int flags),
             ((void)flags, wait_event(stream, event, null_stream)))

DEFINE_TWINS(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode),
             begin_capture(stream, mode, null_stream))

DEFINE_TWINS(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph),
             end_capture(stream, graph, null_stream))

DEFINE_TWINS(cuEventRecord, _ptsz, (CUevent event, CUstream stream),
             record(event, stream, null_stream))

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    ENTER_CONTEXT();
    (void)flags;
    if (!event)
        return CUDA_ERROR_INVALID_VALUE;
    CUevent taken = handle_take(HANDLE_EVENT);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *event = taken;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER_INITIALIZED();
    if (!handle_is(event, HANDLE_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    handle_release(event);
    return CUDA_SUCCESS;
}
