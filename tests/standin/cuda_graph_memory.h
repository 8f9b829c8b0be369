/* The memory that nodes of graphs allocate and free. */
#ifndef STANDIN_CUDA_GRAPH_MEMORY_H
#define STANDIN_CUDA_GRAPH_MEMORY_H

#include "cuda_graph.h"
#include "cuda_internal.h"

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

#endif
