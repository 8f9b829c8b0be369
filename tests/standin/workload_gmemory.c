/* Commands about memory that graphs allocate and free. Their graphs are apart from those of the
 * graph commands: here each node is tracked. */
#include <stdlib.h>

#include "workload_vmm.h"

struct node {
    uint64_t address;
    size_t bytes;
    bool frees;
};

struct graph {
    bool live, capturing;
    void *graph, *exec;
    void *stream; /* that is captured into it, or was */
    void *joined; /* NULL, or one that takes part by an event */
    size_t count;
    struct node *nodes;
};

static struct list graphs = LIST(struct graph, "graph");

static bool add_graph(struct reply *reply, struct graph graph, int error)
{
    graph.live = true;
    if (!reply_error(reply, error))
        return false;
    reply_add(reply, "%zu", list_add(&graphs, &graph));
    return true;
}

static void add_node(struct graph *graph, struct node node)
{
    graph->nodes = realloc(graph->nodes, (graph->count + 1) * sizeof *graph->nodes);
    graph->nodes[graph->count++] = node;
}

static bool run_gnew(const struct args *args, struct reply *reply)
{
    (void)args;
    struct graph graph = { 0 };
    int error = api.graph_create(&graph.graph, 0);
    return add_graph(reply, graph, error);
}

static bool run_gcapture(const struct args *args, struct reply *reply)
{
    (void)args;
    struct graph graph = { .capturing = true };
    int error = api.stream_create(&graph.stream);
    if (!error)
        error = api.capture_begin(graph.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    return add_graph(reply, graph, error);
}

static bool run_gendcapture(const struct args *args, struct reply *reply)
{
    struct graph *graph = list_named(&graphs, args->number[0], reply);
    if (!graph)
        return false;
    graph->capturing = false;
    return reply_error(reply, api.capture_end(graph->stream, &graph->graph));
}

/* From now on, another stream issues the captured work. */
static bool run_gfork(const struct args *args, struct reply *reply)
{
    struct graph *graph = list_named(&graphs, args->number[0], reply);
    return graph && reply_error(reply, api.stream_create(&graph->joined)) &&
           reply_error(reply, stream_join(graph->joined, graph->stream));
}

/* Destroys the stream while it is captured. */
static bool run_gdrop(const struct args *args, struct reply *reply)
{
    struct graph *graph = list_named(&graphs, args->number[0], reply);
    if (!graph)
        return false;
    graph->live = false;
    return reply_error(reply, api.stream_destroy(graph->stream));
}

/* How the call adds a node: by the function for its kind, or by cuGraphAddNode's first or second
 * version. */
enum way { BY_KIND, BY_NODE, BY_NODE2 };

static bool read_way(const struct args *args, enum way *way, struct reply *reply)
{
    *way = args->number[2] ? BY_NODE : args->number[3] ? BY_NODE2 : BY_KIND;
    return *way == BY_KIND || vmm_load(reply);
}

static int add_by_type(enum way way, const struct graph *graph, CUgraphNodeParams *params)
{
    CUgraphNode node;
    if (way == BY_NODE)
        return vmm.cuGraphAddNode(&node, graph->graph, NULL, 0, params);
    return vmm.cuGraphAddNode_v2(&node, graph->graph, NULL, NULL, 0, params);
}

static int alloc_node(enum way way, const struct graph *graph, size_t bytes, uint64_t *address)
{
    void *node;
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = { .poolProps = pool_properties(NULL), .bytesize = bytes },
    };
    params.alloc.poolProps.handleTypes = 0; /* graphs share none */
    int error = way == BY_KIND ? api.graph_alloc(&node, graph->graph, NULL, 0, &params.alloc)
                               : add_by_type(way, graph, &params);
    *address = params.alloc.dptr;
    return error;
}

static int free_node(enum way way, const struct graph *graph, uint64_t address)
{
    void *node;
    CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = { address } };
    return way == BY_KIND ? api.graph_free(&node, graph->graph, NULL, 0, (void *)address)
                          : add_by_type(way, graph, &params);
}

static void *capturing_stream(const struct graph *graph)
{
    return graph->joined ? graph->joined : graph->stream;
}

/* While the graph is captured, by the calls that would else allocate and free. */
CALL_SITE static bool run_galloc(const struct args *args, struct reply *reply)
{
    uint64_t address = 0;
    enum way way;
    struct graph *graph = list_named(&graphs, args->number[0], reply);
    if (!graph || !read_way(args, &way, reply))
        return false;
    int error = graph->capturing && way == BY_KIND
                    ? api.async_alloc((void **)&address, args->number[1], capturing_stream(graph))
                    : alloc_node(way, graph, args->number[1], &address);
    if (error)
        return reply_error(reply, error);
    add_node(graph, (struct node){ address, args->number[1], false });
    reply_handle(reply, 0, address);
    return true;
}

CALL_SITE static bool run_gfree(const struct args *args, struct reply *reply)
{
    enum way way;
    struct graph *graph = list_named(&graphs, args->number[0], reply);
    if (!graph || !read_way(args, &way, reply))
        return false;
    int error = graph->capturing && way == BY_KIND
                    ? api.async_free((void *)args->number[1], capturing_stream(graph))
                    : free_node(way, graph, args->number[1]);
    if (error)
        return reply_error(reply, error);
    add_node(graph, (struct node){ args->number[1], 0, true });
    return true;
}

/* A launch's allocations and frees. The launch is no allocating call: `allocs` does not count
 * it. */
static void note_launch(struct tally *tally, const struct graph *graph)
{
    uint64_t allocs = tally->allocs;
    struct slot *freed;
    for (size_t i = 0; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        if (node->frees) {
            while ((freed = slot_of(KIND_GRAPH, node->address)))
                slot_end(tally, freed);
            continue;
        }
        bool stays = true;
        for (size_t j = i + 1; j < graph->count; j++)
            stays &= !(graph->nodes[j].frees && graph->nodes[j].address == node->address);
        if (stays)
            slot_add(tally, async_slot(KIND_GRAPH, (void *)node->address, node->bytes, NULL));
    }
    tally->allocs = allocs;
}

static bool build(struct graph *graph, struct reply *reply)
{
    return graph && (graph->exec ||
                     reply_error(reply, api.graph_instantiate(&graph->exec, graph->graph, 0)));
}

CALL_SITE static bool run_glaunch(const struct args *args, struct reply *reply)
{
    struct graph *graph = list_named(&graphs, args->number[0], reply);
    if (!build(graph, reply))
        return false;
    struct tally tally = { 0 };
    uint64_t start = now_ns();
    for (uint64_t i = 0; i < args->number[1]; i++) {
        if (!tally_result(&tally, api.graph_launch(graph->exec, NULL)))
            continue;
        tally.graph_launches++;
        note_launch(&tally, graph);
    }
    reply_add(reply, "graph_launches=%lu ns=%lu", tally.graph_launches, now_ns() - start);
    return reply_done(reply, &tally);
}

/* Frees no live memory. */
CALL_SITE static bool run_gdestroy(const struct args *args, struct reply *reply)
{
    struct graph *graph = list_named(&graphs, args->number[0], reply);
    if (!build(graph, reply))
        return false;
    graph->live = false;
    free(graph->nodes);
    return reply_error(reply, destroy_graph(graph->graph, graph->exec));
}

static bool run_gtrim(const struct args *args, struct reply *reply)
{
    (void)args;
    return reply_error(reply, api.graph_trim(thread_device));
}

const struct command gmemory_commands[] = {
    { "gnew", NEEDS_API, run_gnew },
    { "gcapture", NEEDS_API, run_gcapture },
    { "gendcapture GRAPH", NEEDS_API, run_gendcapture },
    { "gfork GRAPH", NEEDS_API, run_gfork },
    { "gdrop GRAPH", NEEDS_API, run_gdrop },
    { "galloc GRAPH SIZE [node] [node2]", NEEDS_API, run_galloc },
    { "gfree GRAPH ADDRESS [node] [node2]", NEEDS_API, run_gfree },
    { "glaunch GRAPH [COUNT]", NEEDS_API, run_glaunch },
    { "gdestroy GRAPH", NEEDS_API, run_gdestroy },
    { "gtrim", NEEDS_API, run_gtrim },
    { .usage = NULL },
};
