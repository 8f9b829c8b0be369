/* Stand-in libcuda: graphs that are built node by node. Nodes are no objects; a node handle is a
 * pointer that is never dereferenced. */
#include "cuda_internal.h"

static CUresult finish(CUgraphNode *node, CUgraph graph, CUresult error)
{
    if (!error)
        *node = (CUgraphNode)((uintptr_t)graph + atomic_load(&graph->nodes));
    return error;
}

static CUresult check(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                      size_t dependency_count)
{
    if (!node || (dependency_count && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    return handle_is(graph, HANDLE_GRAPH) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult add_allocation(CUgraph graph, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (!params || !params->bytesize ||
        params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !is_device(params->poolProps.location.id))
        return CUDA_ERROR_INVALID_VALUE;
    return graph_add_allocation(graph, params->poolProps.location.id, params->bytesize,
                                &params->dptr);
}

static CUresult add_node(CUgraph graph, CUgraphNodeParams *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
        atomic_fetch_add(&graph->nodes, 1);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_allocation(graph, &params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return graph_add_free(graph, params->free.dptr);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    ENTER_INITIALIZED();
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph taken = handle_take(HANDLE_GRAPH);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *graph = taken;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t dependency_count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    ENTER_INITIALIZED();
    CUresult error = check(node, graph, dependencies, dependency_count);
    return error ? error : finish(node, graph, add_allocation(graph, params));
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t dependency_count, CUdeviceptr address)
{
    ENTER_INITIALIZED();
    CUresult error = check(node, graph, dependencies, dependency_count);
    return error ? error : finish(node, graph, graph_add_free(graph, address));
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t dependency_count, CUgraphNodeParams *params)
{
    ENTER_INITIALIZED();
    CUresult error = check(node, graph, dependencies, dependency_count);
    return error ? error : finish(node, graph, add_node(graph, params));
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const void *dependency_data, size_t dependency_count,
                           CUgraphNodeParams *params)
{
    ENTER_INITIALIZED();
    (void)dependency_data;
    CUresult error = check(node, graph, dependencies, dependency_count);
    return error ? error : finish(node, graph, add_node(graph, params));
}

/* Graphs here reserve no unused memory. */
CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    ENTER_INITIALIZED();
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
