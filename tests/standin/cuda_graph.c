/* Stand-in libcuda: graphs. Only the number of their nodes is known, and which of
 * them are about memory. */
#include "cuda_graph_memory.h"

#include "cuda_internal.h"

struct CUgraphExec_st {
    struct handle handle;
    size_t nodes;
    struct graph_memory *memory; /* see CUgraph_st */
    bool free_first;             /* at a launch, what the last one allocated */
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
    taken->free_first = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    *exec = taken;
    return CUDA_SUCCESS;
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
    if (!stream_capture_node(resolved))
        return graph_memory_launch(exec->memory, exec->free_first);
    /* What has memory nodes can be no part of another graph. */
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
