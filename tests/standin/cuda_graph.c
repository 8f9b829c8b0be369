/* Stand-in libcuda: graphs. Only the number of their nodes is known, and the memory nodes. */

#include "cuda_internal.h"

struct CUgraphExec_st {
    struct handle handle;
    size_t nodes;
    struct graph_memory *memory; /* see CUgraph_st */
    bool free_first;             /* at a launch, the last launch's allocations */
    uint32_t kernels, number;    /* see CUgraph_st; as CUPTI has it */
    const char *kernel_name;
};

/* The real function can also fill in `nodes`; here nodes are no objects. */
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    ENTER_INITIALIZED();
    if (!handle_is(graph, HANDLE_GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    if (nodes || !count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = atomic_load(&graph->nodes);
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    ENTER_INITIALIZED();
    if (!handle_is(graph, HANDLE_GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec taken = handle_take(HANDLE_GRAPH_EXEC);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    taken->nodes = atomic_load(&graph->nodes);
    taken->memory = graph_memory_copy(graph->memory);
    static atomic_uint last_number;
    taken->kernels = atomic_load(&graph->kernels);
    taken->kernel_name = atomic_load(&graph->kernel_name);
    taken->number = atomic_fetch_add(&last_number, 1) + 1;
    taken->free_first = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    *exec = taken;
    return CUDA_SUCCESS;
}

/* The graph as a whole, and each of its kernels: CUPTI records the one or the
 * others. */
static void tell(const struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    CUcontext context;
    if (!activity_is_wanted() || context_current(&context))
        return;
    struct activity activity = { .kind = ACTIVITY_GRAPH,
                                 .device = (uint32_t)context->device,
                                 .context = context->number,
                                 .stream = stream_number(stream),
                                 .graph = exec->number };
    activity_tell(activity);
    activity.kind = ACTIVITY_KERNEL;
    activity.name = exec->kernel_name;
    for (int i = 0; i < 3; i++)
        activity.grid[i] = activity.block[i] = 1;
    for (uint32_t i = 0; i < exec->kernels; i++) {
        activity.graph_node = ((uint64_t)exec->number << 32) + i + 1;
        activity_tell(activity);
    }
}

/* Launched on a captured stream, a graph is one node of the other graph. */
static CUresult launch(CUgraphExec exec, CUstream stream, CUstream null_stream)
{
    struct CUstream_st *resolved;
    if (!handle_is(exec, HANDLE_GRAPH_EXEC))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult error = stream_resolve(stream, null_stream, &resolved);
    if (error)
        return error;
    if (!stream_capture_node(resolved)) {
        error = graph_memory_launch(exec->memory, exec->free_first);
        if (!error)
            tell(exec, resolved);
        return error;
    }
    /* A graph with memory nodes cannot be a child graph. */
    return exec->memory ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

DEFINE_TWINS(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream),
             launch(exec, stream, null_stream))

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    ENTER_INITIALIZED();
    if (!handle_is(exec, HANDLE_GRAPH_EXEC))
        return CUDA_ERROR_INVALID_HANDLE;
    graph_memory_delete(exec->memory);
    handle_release(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER_INITIALIZED();
    if (!handle_is(graph, HANDLE_GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    graph_memory_delete(graph->memory);
    handle_release(graph);
    return CUDA_SUCCESS;
}
