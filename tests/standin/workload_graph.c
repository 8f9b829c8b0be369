/* Commands about streams, and about graphs that are captured on them. */
#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#include "workload.h"

struct stream {
    bool live;
    int device;
    void *stream;
    void *context;    /* see thread_context */
    unsigned capture; /* the number of its graph, or 0 */
};

struct event {
    bool live;
    unsigned capture; /* of the stream where it was last recorded */
    void *event;
};

struct graph {
    bool live;
    void *graph, *exec;
};

static struct list streams = LIST(struct stream, "stream"), events = LIST(struct event, "event"),
                   graphs = LIST(struct graph, "graph");

bool stream_named(const char *text, void **stream, bool *captured, struct reply *reply)
{
    const struct stream *found = NULL;
    uint64_t number;
    if (!text)
        *stream = NULL;
    else if (!strcmp(text, "legacy"))
        *stream = CU_STREAM_LEGACY;
    else if (!strcmp(text, "per-thread"))
        *stream = CU_STREAM_PER_THREAD;
    else if (!parse_u64(text, &number, reply) || !(found = list_named(&streams, number, reply)))
        return false;
    else
        *stream = found->stream;
    if (captured)
        *captured = found && found->capture;
    return true;
}

void stream_captured(const char *text, bool is_captured)
{
    uint64_t number;
    struct reply none = { 0 };
    struct stream *found =
        parse_u64(text, &number, &none) ? list_named(&streams, number, &none) : NULL;
    if (found)
        found->capture = is_captured ? UINT_MAX : 0;
}

bool running_stream(const char *text, void **stream, struct reply *reply)
{
    bool captured;
    return stream_named(text, stream, &captured, reply) &&
           (!captured || reply_no(reply, "stream %s is captured", text));
}

void streams_forget_context(int device, const void *context)
{
    struct stream *stream;
    FOR_EACH(stream, &streams)
    if (stream->device == device && stream->context == context)
        stream->live = false;
}

CALL_SITE static bool run_stream(const struct args *args, struct reply *reply)
{
    (void)args;
    struct stream stream = { .live = true, .device = thread_device, .context = thread_context };
    if (!reply_error(reply, api.stream_create(&stream.stream)))
        return false;
    reply_add(reply, "%zu", list_add(&streams, &stream));
    return true;
}

static bool run_syncstream(const struct args *args, struct reply *reply)
{
    void *stream;
    return stream_named(args->text[0], &stream, NULL, reply) &&
           reply_error(reply, api.stream_synchronize(stream));
}

static bool run_streamdestroy(const struct args *args, struct reply *reply)
{
    struct stream *stream = list_named(&streams, args->number[0], reply);
    if (!stream || !reply_error(reply, api.stream_destroy(stream->stream)))
        return false;
    stream->live = false;
    return true;
}

int destroy_graph(void *graph, void *exec)
{
    int error = api.exec_destroy(exec);
    return error ? error : api.graph_destroy(graph);
}

/* ---- events ------------------------------------------------------------ */

int stream_join(void *joining, void *stream)
{
    void *event;
    int error = api.event_create(&event);
    if (error)
        return error;
    error = api.event_record(event, stream);
    if (!error)
        error = api.stream_wait(joining, event, 0);
    int destroy_error = api.event_destroy(event);
    return error ? error : destroy_error;
}

CALL_SITE static bool run_event(const struct args *args, struct reply *reply)
{
    (void)args;
    struct event event = { .live = true };
    if (!reply_error(reply, api.event_create(&event.event)))
        return false;
    reply_add(reply, "%zu", list_add(&events, &event));
    return true;
}

static bool run_eventdestroy(const struct args *args, struct reply *reply)
{
    struct event *event = list_named(&events, args->number[0], reply);
    if (!event || !reply_error(reply, api.event_destroy(event->event)))
        return false;
    event->live = false;
    return true;
}

/* ---- objects of libraries ---------------------------------------------- */

static void *in_library(const char *name, const char *function)
{
    void *library = dlopen(name, RTLD_NOW);
    return library ? dlsym(library, function) : NULL;
}

static void *fft(const char *function)
{
    return in_library("libcufft.so.12", function);
}

static void *nccl(const char *function)
{
    return in_library("libnccl.so.2", function);
}

CALL_SITE static bool run_plan(const struct args *args, struct reply *reply)
{
    (void)args;
    int (*make)(int *, int, int, int) = fft("cufftPlan1d");
    int plan;
    if (!make)
        return reply_no(reply, "no libcufft.so.12");
    if (!reply_error(reply, make(&plan, 1024, 0x29, 1)))
        return false;
    reply_add(reply, "%d", plan);
    return true;
}

static bool run_planfree(const struct args *args, struct reply *reply)
{
    int (*destroy)(int) = fft("cufftDestroy");
    return destroy && reply_error(reply, destroy((int)args->number[0]));
}

enum { MAX_COMMUNICATORS = 64, IN_PROGRESS = 7 };
static void *communicators[MAX_COMMUNICATORS];

CALL_SITE static bool run_communicators(const struct args *args, struct reply *reply)
{
    int (*make)(void **, int, const int *) = nccl("ncclCommInitAll");
    if (!make || args->number[0] > MAX_COMMUNICATORS)
        return reply_no(reply, "no libnccl.so.2, or too many");
    return reply_error(reply, make(communicators, (int)args->number[0], NULL));
}

/* Replaces a communicator, which is lost; `none` leaves it as it is. */
CALL_SITE static bool run_split(const struct args *args, struct reply *reply)
{
    int (*split)(void *, int, int, void **, void *) = nccl("ncclCommSplit");
    void *child, **parent = &communicators[args->number[0] % MAX_COMMUNICATORS];
    bool is_member = !args->text[1];
    if (!split || split(*parent, is_member - 1, 0, &child, NULL) != (is_member ? IN_PROGRESS : 0))
        return reply_no(reply, "not split");
    *parent = is_member ? child : *parent;
    return true;
}

static bool run_communicatorfree(const struct args *args, struct reply *reply)
{
    int (*destroy)(void *) = nccl("ncclCommDestroy");
    int error = destroy(communicators[args->number[0] % MAX_COMMUNICATORS]);
    return reply_error(reply, error == IN_PROGRESS ? 0 : error);
}

static bool run_record(const struct args *args, struct reply *reply)
{
    struct event *event = list_named(&events, args->number[0], reply);
    const struct stream *stream = list_named(&streams, args->number[1], reply);
    if (!event || !stream || !reply_error(reply, api.event_record(event->event, stream->stream)))
        return false;
    event->capture = stream->capture;
    return true;
}

static bool run_waitevent(const struct args *args, struct reply *reply)
{
    struct stream *stream = list_named(&streams, args->number[0], reply);
    const struct event *event = list_named(&events, args->number[1], reply);
    if (!stream || !event || !reply_error(reply, api.stream_wait(stream->stream, event->event, 0)))
        return false;
    if (event->capture)
        stream->capture = event->capture;
    return true;
}

/* ---- one step at a time ------------------------------------------------ */

static bool run_capture(const struct args *args, struct reply *reply)
{
    static unsigned last;
    struct stream *stream = list_named(&streams, args->number[0], reply);
    if (!stream ||
        !reply_error(reply, api.capture_begin(stream->stream, CU_STREAM_CAPTURE_MODE_GLOBAL)))
        return false;
    stream->capture = ++last;
    return true;
}

/* Streams and events are in it no more. */
static void forget_capture(unsigned capture)
{
    struct stream *stream;
    struct event *event;
    FOR_EACH(stream, &streams)
    if (stream->capture == capture)
        stream->capture = 0;
    FOR_EACH(event, &events)
    if (event->capture == capture)
        event->capture = 0;
}

/* An executable graph, and the number of nodes that CUDA reports. */
static int finish_capture(void *stream, struct graph *graph, size_t *nodes)
{
    int error = api.capture_end(stream, &graph->graph);
    if (!error)
        error = api.graph_nodes(graph->graph, NULL, nodes);
    if (!error)
        error = api.graph_instantiate(&graph->exec, graph->graph, 0);
    return error;
}

static bool run_endcapture(const struct args *args, struct reply *reply)
{
    struct graph graph = { .live = true };
    size_t nodes;
    struct stream *stream = list_named(&streams, args->number[0], reply);
    if (!stream || !reply_error(reply, finish_capture(stream->stream, &graph, &nodes)))
        return false;
    forget_capture(stream->capture);
    reply_add(reply, "%zu nodes=%zu", list_add(&graphs, &graph), nodes);
    return true;
}

CALL_SITE static void make_graph_launches(struct tally *tally, const struct graph *graph,
                                          void *stream, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (tally_result(tally, api.graph_launch(graph->exec, stream)))
            tally->graph_launches++;
}

static bool run_graphlaunch(const struct args *args, struct reply *reply)
{
    void *stream;
    struct tally tally = { 0 };
    const struct graph *graph = list_named(&graphs, args->number[0], reply);
    if (!graph || !running_stream(args->text[2], &stream, reply))
        return false;
    make_graph_launches(&tally, graph, stream, args->number[1]);
    reply_add(reply, "graph_launches=%lu", tally.graph_launches);
    return reply_done(reply, &tally);
}

/* ---- all at once ------------------------------------------------------- */

/* Launches kernels in turn; with a second stream, every other one there. */
CALL_SITE static int capture_launches(struct tally *tally, uint64_t kernels, void *stream,
                                      void *second)
{
    const void *found[BUILTIN_KERNELS];
    int error = 0;
    for (int i = 0; !error && i < BUILTIN_KERNELS; i++)
        error = api.builtin(i, &found[i]);
    if (!error)
        error = api.capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!error && second)
        error = stream_join(second, stream);
    if (error)
        return error;
    for (uint64_t i = 0; i < kernels; i++) {
        struct launch launch = { found[i % BUILTIN_KERNELS],
                                 { 80, 1, 1 },
                                 { 128, 1, 1 },
                                 second && i % 2 ? second : stream };
        if (tally_result(tally, api.launches->call(&launch)))
            tally->captured++;
    }
    return second ? stream_join(stream, second) : 0;
}

static int make_graph(struct tally *tally, uint64_t kernels, uint64_t launches, void *stream,
                      void *second, size_t *nodes)
{
    struct graph graph;
    int error = capture_launches(tally, kernels, stream, second);
    if (!error)
        error = finish_capture(stream, &graph, nodes);
    if (error)
        return error;
    make_graph_launches(tally, &graph, stream, launches);
    error = api.stream_synchronize(stream);
    int destroy_error = destroy_graph(graph.graph, graph.exec);
    return error ? error : destroy_error;
}

static bool run_graph(const struct args *args, struct reply *reply)
{
    void *stream = NULL, *second = NULL;
    struct tally tally = { 0 };
    size_t nodes = 0;
    int error = api.stream_create(&stream);
    if (!error && args->number[2])
        error = api.stream_create(&second);
    if (!error)
        error = make_graph(&tally, args->number[0], args->number[1], stream, second, &nodes);
    if (second)
        api.stream_destroy(second);
    if (stream)
        api.stream_destroy(stream);
    if (error) {
        truth_add(&tally);
        return reply_error(reply, error);
    }
    if (nodes != tally.captured)
        reply_add(reply, "%zu nodes in the graph, but ", nodes);
    reply_add(reply, "captured=%lu graph_launches=%lu", tally.captured, tally.graph_launches);
    return reply_done(reply, &tally) && nodes == tally.captured;
}

const struct command graph_commands[] = {
    { "stream", NEEDS_API, run_stream },
    { "syncstream <stream>", NEEDS_API, run_syncstream },
    { "streamdestroy STREAM", NEEDS_API, run_streamdestroy },
    { "event", NEEDS_API, run_event },
    { "eventdestroy EVENT", NEEDS_API, run_eventdestroy },
    { "plan", NEEDS_API, run_plan },
    { "planfree PLAN", NEEDS_API, run_planfree },
    { "communicators NUMBER", NEEDS_API, run_communicators },
    { "split COMMUNICATOR [none]", NEEDS_API, run_split },
    { "communicatorfree COMMUNICATOR", NEEDS_API, run_communicatorfree },
    { "record EVENT STREAM", NEEDS_API, run_record },
    { "waitevent STREAM EVENT", NEEDS_API, run_waitevent },
    { "capture STREAM", NEEDS_API, run_capture },
    { "endcapture STREAM", NEEDS_API, run_endcapture },
    { "graphlaunch GRAPH [COUNT] [stream=]", NEEDS_API, run_graphlaunch },
    { "graph KERNELS LAUNCHES [fork]", NEEDS_API, run_graph },
    { .usage = NULL },
};
