/* Commands about streams, and about graphs that are captured on them. */
#include <stdlib.h>
#include <string.h>

#include "workload.h"
#include "workload_options.h"

#define MAX_GRAPH_KERNELS 1000000

/* One command runs at a time, on whichever thread: no lock. */
static struct stream {
    void *stream;
    int device;
    void *context; /* see thread_context */
    bool live;
    unsigned capture; /* the number of its graph, or 0 */
} * streams;
static size_t stream_count;

static struct event {
    void *event;
    unsigned capture; /* of the stream where it was last recorded */
} * events;
static size_t event_count;

static struct graph {
    void *graph, *exec;
} * graphs;
static size_t graph_count;

static struct stream *find_stream(const char *text, struct reply *reply)
{
    uint64_t number;
    if (!parse_u64(text, SIZE_MAX, &number, reply))
        return NULL;
    if (number < stream_count && streams[number].live)
        return &streams[number];
    reply_add(reply, "no stream %s", text);
    return NULL;
}

bool stream_named(const char *text, void **stream, bool *captured, struct reply *reply)
{
    const struct stream *found = NULL;
    if (!text)
        *stream = NULL;
    else if (!strcmp(text, "legacy"))
        *stream = CU_STREAM_LEGACY;
    else if (!strcmp(text, "per-thread"))
        *stream = CU_STREAM_PER_THREAD;
    else if (!(found = find_stream(text, reply)))
        return false;
    else
        *stream = found->stream;
    if (captured)
        *captured = found && found->capture;
    return true;
}

void streams_forget_context(int device, const void *context)
{
    for (size_t i = 0; i < stream_count; i++)
        if (streams[i].device == device && streams[i].context == context)
            streams[i].live = false;
}

static bool run_stream(struct words *words, struct reply *reply)
{
    (void)words;
    void *stream;
    int error = api.work->stream_create(&stream);
    if (error)
        return reply_error(reply, error);
    streams = realloc(streams, (stream_count + 1) * sizeof *streams);
    streams[stream_count] = (struct stream){ stream, thread_device, thread_context, true, 0 };
    reply_add(reply, "%zu", stream_count++);
    return true;
}

static bool run_syncstream(struct words *words, struct reply *reply)
{
    void *stream;
    return stream_named(words->word[1], &stream, NULL, reply) &&
           reply_error(reply, api.work->stream_synchronize(stream));
}

static bool run_streamdestroy(struct words *words, struct reply *reply)
{
    struct stream *stream = find_stream(words->word[1], reply);
    if (!stream || !reply_error(reply, api.work->stream_destroy(stream->stream)))
        return false;
    stream->live = false;
    return true;
}

int destroy_graph(void *graph, void *exec)
{
    int error = api.work->exec_destroy(exec);
    return error ? error : api.work->graph_destroy(graph);
}

/* ---- events ------------------------------------------------------------ */

int stream_join(void *joining, void *stream)
{
    void *event;
    int error = api.work->event_create(&event);
    if (error)
        return error;
    error = api.work->event_record(event, stream);
    if (!error)
        error = api.work->stream_wait(joining, event, 0);
    int destroy_error = api.work->event_destroy(event);
    return error ? error : destroy_error;
}

static struct event *find_event(const char *text, struct reply *reply)
{
    uint64_t number;
    if (!parse_u64(text, SIZE_MAX, &number, reply))
        return NULL;
    if (number < event_count)
        return &events[number];
    reply_add(reply, "no event %s", text);
    return NULL;
}

static bool run_event(struct words *words, struct reply *reply)
{
    (void)words;
    struct event event = { NULL };
    if (!reply_error(reply, api.work->event_create(&event.event)))
        return false;
    events = realloc(events, (event_count + 1) * sizeof *events);
    events[event_count] = event;
    reply_add(reply, "%zu", event_count++);
    return true;
}

static bool run_record(struct words *words, struct reply *reply)
{
    struct event *event = find_event(words->word[1], reply);
    const struct stream *stream = find_stream(words->word[2], reply);
    if (!event || !stream ||
        !reply_error(reply, api.work->event_record(event->event, stream->stream)))
        return false;
    event->capture = stream->capture;
    return true;
}

static bool run_waitevent(struct words *words, struct reply *reply)
{
    struct stream *stream = find_stream(words->word[1], reply);
    const struct event *event = find_event(words->word[2], reply);
    if (!stream || !event ||
        !reply_error(reply, api.work->stream_wait(stream->stream, event->event, 0)))
        return false;
    if (event->capture)
        stream->capture = event->capture;
    return true;
}

/* ---- one step at a time ------------------------------------------------ */

static bool run_capture(struct words *words, struct reply *reply)
{
    struct stream *stream = find_stream(words->word[1], reply);
    if (!stream)
        return false;
    static unsigned last;
    int error = api.work->capture_begin(stream->stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!error)
        stream->capture = ++last;
    return reply_error(reply, error);
}

/* Streams and events are in it no more. */
static void forget_capture(unsigned capture)
{
    for (size_t i = 0; i < stream_count; i++)
        if (streams[i].capture == capture)
            streams[i].capture = 0;
    for (size_t i = 0; i < event_count; i++)
        if (events[i].capture == capture)
            events[i].capture = 0;
}

/* An executable graph, and the number of nodes that CUDA reports. */
static int finish_capture(void *stream, struct graph *graph, size_t *nodes)
{
    int error = api.work->capture_end(stream, &graph->graph);
    if (!error)
        error = api.work->graph_nodes(graph->graph, NULL, nodes);
    if (!error)
        error = api.work->graph_instantiate(&graph->exec, graph->graph, 0);
    return error;
}

static bool run_endcapture(struct words *words, struct reply *reply)
{
    struct graph graph;
    size_t nodes;
    struct stream *stream = find_stream(words->word[1], reply);
    if (!stream)
        return false;
    int error = finish_capture(stream->stream, &graph, &nodes);
    if (error)
        return reply_error(reply, error);
    forget_capture(stream->capture);
    graphs = realloc(graphs, (graph_count + 1) * sizeof *graphs);
    graphs[graph_count] = graph;
    reply_add(reply, "%zu nodes=%zu", graph_count++, nodes);
    return true;
}

CALL_SITE static void make_graph_launches(struct tally *tally, const struct graph *graph,
                                          void *stream, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (tally_result(tally, api.work->graph_launch(graph->exec, stream)))
            tally->graph_launches++;
}

static bool run_graphlaunch(struct words *words, struct reply *reply)
{
    uint64_t number, count = 1;
    const char *text = NULL;
    void *stream;
    bool captured;
    const struct option options[] = { { NULL, OPTION_NUMBER, &count, MAX_CALLS },
                                      { "stream", OPTION_TEXT, &text, 0 } };
    if (!parse_u64(words->word[1], SIZE_MAX, &number, reply) ||
        !parse_options(words, 2, options, 2, reply) ||
        !stream_named(text, &stream, &captured, reply))
        return false;
    if (number >= graph_count || captured) {
        reply_add(reply, captured ? "stream %s is captured" : "no graph %s",
                  captured ? text : words->word[1]);
        return false;
    }
    struct tally tally = { 0 };
    make_graph_launches(&tally, &graphs[number], stream, count);
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
        error = api.work->builtin(i, &found[i]);
    if (!error)
        error = api.work->capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!error && second)
        error = stream_join(second, stream);
    if (error)
        return error;
    for (uint64_t i = 0; i < kernels; i++) {
        struct launch launch = { found[i % BUILTIN_KERNELS],
                                 { 80, 1, 1 },
                                 { 128, 1, 1 },
                                 second && i % 2 ? second : stream };
        if (tally_result(tally, api.work->launches->call(&launch)))
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
    error = api.work->stream_synchronize(stream);
    int destroy_error = destroy_graph(graph.graph, graph.exec);
    return error ? error : destroy_error;
}

static bool run_graph(struct words *words, struct reply *reply)
{
    uint64_t kernels, launches;
    bool fork = false;
    const struct option options[] = { { "fork", OPTION_FLAG, &fork, 0 } };
    if (!parse_u64(words->word[1], MAX_GRAPH_KERNELS, &kernels, reply) ||
        !parse_u64(words->word[2], MAX_CALLS, &launches, reply) ||
        !parse_options(words, 3, options, 1, reply))
        return false;
    void *stream = NULL, *second = NULL;
    struct tally tally = { 0 };
    size_t nodes = 0;
    int error = api.work->stream_create(&stream);
    if (!error && fork)
        error = api.work->stream_create(&second);
    if (!error)
        error = make_graph(&tally, kernels, launches, stream, second, &nodes);
    if (second)
        api.work->stream_destroy(second);
    if (stream)
        api.work->stream_destroy(stream);
    truth_add(&tally);
    if (error)
        return reply_error(reply, error);
    if (nodes != tally.captured)
        reply_add(reply, "%zu nodes in the graph, but ", nodes);
    reply_add(reply, "captured=%lu graph_launches=%lu", tally.captured, tally.graph_launches);
    reply_failures(reply, &tally);
    return nodes == tally.captured;
}

const struct command graph_commands[] = {
    { "stream", "stream", 0, 0, NEEDS_API, run_stream },
    { "syncstream", "syncstream STREAM", 1, 1, NEEDS_API, run_syncstream },
    { "streamdestroy", "streamdestroy STREAM", 1, 1, NEEDS_API, run_streamdestroy },
    { "event", "event", 0, 0, NEEDS_API, run_event },
    { "record", "record EVENT STREAM", 2, 2, NEEDS_API, run_record },
    { "waitevent", "waitevent STREAM EVENT", 2, 2, NEEDS_API, run_waitevent },
    { "capture", "capture STREAM", 1, 1, NEEDS_API, run_capture },
    { "endcapture", "endcapture STREAM", 1, 1, NEEDS_API, run_endcapture },
    { "graphlaunch", "graphlaunch GRAPH [COUNT] [stream=STREAM]", 1, 3, NEEDS_API,
      run_graphlaunch },
    { "graph", "graph KERNELS LAUNCHES [fork]", 2, 3, NEEDS_API, run_graph },
    { .name = NULL },
};
