/* Commands about memory that graphs allocate and free. Their graphs are apart from those of the
 * graph commands: here each node is tracked. */
#include <stdlib.h>
#include <string.h>

#include "workload_async.h"
#include "workload_vmm.h"
#include "workload_options.h"

/* One command runs at a time, on whichever thread: no lock. */
static struct mgraph {
    void *graph, *exec;
    void *stream; /* that is captured into it, or was */
    void *joined; /* NULL, or one that takes part by an event */
    bool capturing, live;
    size_t count;
    struct mnode {
        uint64_t address;
        size_t bytes;
        bool frees;
    } * nodes;
} * graphs;
static size_t graph_count;

static struct mgraph *find_graph(const char *text, struct reply *reply)
{
    uint64_t number;
    if (!parse_u64(text, SIZE_MAX, &number, reply))
        return NULL;
    if (number < graph_count && graphs[number].live)
        return &graphs[number];
    reply_add(reply, "no such graph: %s", text);
    return NULL;
}

static bool add_graph(struct reply *reply, struct mgraph graph, int error)
{
    if (error)
        return reply_error(reply, error);
    graph.live = true;
    graphs = realloc(graphs, (graph_count + 1) * sizeof *graphs);
    graphs[graph_count] = graph;
    reply_add(reply, "%zu", graph_count++);
    return true;
}

static void add_node(struct mgraph *graph, struct mnode node)
{
    graph->nodes = realloc(graph->nodes, (graph->count + 1) * sizeof *graph->nodes);
    graph->nodes[graph->count++] = node;
}

static bool run_gnew(struct words *words, struct reply *reply)
{
    (void)words;
    struct mgraph graph = { 0 };
    int error = api.work->graph_create(&graph.graph, 0);
    return add_graph(reply, graph, error);
}

static bool run_gcapture(struct words *words, struct reply *reply)
{
    (void)words;
    struct mgraph graph = { .capturing = true };
    int error = api.work->stream_create(&graph.stream);
    if (!error)
        error = api.work->capture_begin(graph.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    return add_graph(reply, graph, error);
}

static bool run_gendcapture(struct words *words, struct reply *reply)
{
    struct mgraph *graph = find_graph(words->word[1], reply);
    if (!graph)
        return false;
    graph->capturing = false;
    return reply_error(reply, api.work->capture_end(graph->stream, &graph->graph));
}

/* From now on, another stream issues the captured work. */
static bool run_gfork(struct words *words, struct reply *reply)
{
    struct mgraph *graph = find_graph(words->word[1], reply);
    if (!graph)
        return false;
    int error = api.work->stream_create(&graph->joined);
    if (!error)
        error = stream_join(graph->joined, graph->stream);
    return reply_error(reply, error);
}

/* Destroys the stream while it is captured. */
static bool run_gdrop(struct words *words, struct reply *reply)
{
    struct mgraph *graph = find_graph(words->word[1], reply);
    if (!graph)
        return false;
    graph->live = false;
    return reply_error(reply, api.work->stream_destroy(graph->stream));
}

/* By cuGraphAddNode (`node`) or its second version (`node2`). */
static int add_by_type(const char *how, const struct mgraph *graph, CUgraphNodeParams *params)
{
    CUgraphNode node;
    if (!strcmp(how, "node"))
        return vmm.cuGraphAddNode(&node, graph->graph, NULL, 0, params);
    return vmm.cuGraphAddNode_v2(&node, graph->graph, NULL, NULL, 0, params);
}

static int alloc_by_type(const char *how, const struct mgraph *graph, size_t bytes, void **address)
{
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = { CU_MEM_LOCATION_TYPE_DEVICE, thread_device } },
                   .bytesize = bytes },
    };
    int error = add_by_type(how, graph, &params);
    *address = (void *)(uintptr_t)params.alloc.dptr;
    return error;
}

static int free_by_type(const char *how, const struct mgraph *graph, uint64_t address)
{
    CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = { address } };
    return add_by_type(how, graph, &params);
}

static int alloc_node(const struct mgraph *graph, size_t bytes, void **address)
{
    void *node;
    CUDA_MEM_ALLOC_NODE_PARAMS params = { .poolProps = pool_properties(false), .bytesize = bytes };
    params.poolProps.handleTypes = 0; /* graphs share none */
    int error = api.work->graph_alloc(&node, graph->graph, NULL, 0, &params);
    if (!error)
        *address = (void *)params.dptr;
    return error;
}

static void *capturing_stream(const struct mgraph *graph)
{
    return graph->joined ? graph->joined : graph->stream;
}

/* While the graph is captured, by the calls that would else allocate and free. */
CALL_SITE static bool run_galloc(struct words *words, struct reply *reply)
{
    uint64_t bytes;
    void *address = NULL;
    struct mgraph *graph = find_graph(words->word[1], reply);
    if (!graph || !parse_u64(words->word[2], SIZE_MAX, &bytes, reply))
        return false;
    const char *how = words->word[3];
    if (how && !vmm_load(reply))
        return false;
    int error = how                ? alloc_by_type(how, graph, bytes, &address)
                : graph->capturing ? api.pools->alloc(&address, bytes, capturing_stream(graph))
                                   : alloc_node(graph, bytes, &address);
    if (error)
        return reply_error(reply, error);
    add_node(graph, (struct mnode){ (uintptr_t)address, bytes, false });
    reply_handle(reply, 0, (uintptr_t)address);
    return true;
}

CALL_SITE static bool run_gfree(struct words *words, struct reply *reply)
{
    uint64_t address;
    void *node;
    struct mgraph *graph = find_graph(words->word[1], reply);
    if (!graph || !parse_u64(words->word[2], UINTPTR_MAX, &address, reply))
        return false;
    const char *how = words->word[3];
    if (how && !vmm_load(reply))
        return false;
    int error = how ? free_by_type(how, graph, address)
                : graph->capturing
                    ? api.pools->release((void *)address, capturing_stream(graph))
                    : api.work->graph_free(&node, graph->graph, NULL, 0, (void *)address);
    if (error)
        return reply_error(reply, error);
    add_node(graph, (struct mnode){ address, 0, true });
    return true;
}

static void end_live(struct tally *tally, uint64_t address)
{
    for (size_t i = 0; i < kslot_count(); i++) {
        struct kslot *slot = kslot_at(i);
        if (slot->live && slot->kind == KIND_GRAPH && slot->handle == address)
            kslot_end(tally, slot);
    }
}

/* A launch's allocations and frees. The launch is no allocating call: `allocs` does not count
 * it. */
static void note_launch(struct tally *tally, const struct mgraph *graph)
{
    uint64_t allocs = tally->allocs;
    for (size_t i = 0; i < graph->count; i++) {
        const struct mnode *node = &graph->nodes[i];
        if (node->frees) {
            end_live(tally, node->address);
            continue;
        }
        bool stays = true;
        for (size_t j = i + 1; j < graph->count; j++)
            stays &= !(graph->nodes[j].frees && graph->nodes[j].address == node->address);
        if (stays)
            kslot_add(tally, async_slot(KIND_GRAPH, (void *)node->address, node->bytes, NULL));
    }
    tally->allocs = allocs;
}

static int build(struct mgraph *graph)
{
    return graph->exec ? 0 : api.work->graph_instantiate(&graph->exec, graph->graph, 0);
}

CALL_SITE static bool run_glaunch(struct words *words, struct reply *reply)
{
    uint64_t count = 1;
    struct mgraph *graph = find_graph(words->word[1], reply);
    if (!graph || !parse_optional(words, 2, MAX_CALLS, &count, reply))
        return false;
    int error = build(graph);
    if (error)
        return reply_error(reply, error);
    struct tally tally = { 0 };
    for (uint64_t i = 0; i < count; i++) {
        if (!tally_result(&tally, api.work->graph_launch(graph->exec, NULL)))
            continue;
        tally.graph_launches++;
        note_launch(&tally, graph);
    }
    reply_add(reply, "graph_launches=%lu", tally.graph_launches);
    return reply_done(reply, &tally);
}

/* Frees no live memory. */
CALL_SITE static bool run_gdestroy(struct words *words, struct reply *reply)
{
    struct mgraph *graph = find_graph(words->word[1], reply);
    int error = graph ? build(graph) : 0;
    if (!graph || error)
        return graph ? reply_error(reply, error) : false;
    graph->live = false;
    free(graph->nodes);
    return reply_error(reply, destroy_graph(graph->graph, graph->exec));
}

static bool run_gtrim(struct words *words, struct reply *reply)
{
    (void)words;
    return reply_error(reply, api.work->graph_trim(thread_device));
}

const struct command gmemory_commands[] = {
    { "gnew", "gnew", 0, 0, NEEDS_API, run_gnew },
    { "gcapture", "gcapture", 0, 0, NEEDS_API, run_gcapture },
    { "gendcapture", "gendcapture GRAPH", 1, 1, NEEDS_API, run_gendcapture },
    { "gfork", "gfork GRAPH", 1, 1, NEEDS_API, run_gfork },
    { "gdrop", "gdrop GRAPH", 1, 1, NEEDS_API, run_gdrop },
    { "galloc", "galloc GRAPH SIZE [node|node2]", 2, 3, NEEDS_API, run_galloc },
    { "gfree", "gfree GRAPH ADDRESS [node|node2]", 2, 3, NEEDS_API, run_gfree },
    { "glaunch", "glaunch GRAPH [COUNT]", 1, 2, NEEDS_API, run_glaunch },
    { "gdestroy", "gdestroy GRAPH", 1, 1, NEEDS_API, run_gdestroy },
    { "gtrim", "gtrim", 0, 0, NEEDS_API, run_gtrim },
    { .name = NULL },
};
