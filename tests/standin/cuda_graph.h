/* Graphs, as far as stream capture needs them. */
#ifndef STANDIN_CUDA_GRAPH_H
#define STANDIN_CUDA_GRAPH_H

#include <stddef.h>

#include "cuda_handles.h"

struct CUgraph_st {
    struct handle handle;
    const struct CUstream_st *origin;  /* the stream that began its capture, and must end it */
    const struct thread_state *thread; /* and its thread; NULL: any */
    _Atomic(size_t) nodes;
    struct graph_memory *memory; /* its memory nodes; NULL: none */
    /* The number of kernel nodes, and the name of the last. */
    _Atomic(uint32_t) kernels;
    _Atomic(const char *) kernel_name;
};

_Static_assert(sizeof(struct CUgraph_st) <= HANDLE_BYTES, "a graph must fit its slot");

#endif
