/* Graphs, as far as the capture of streams must know them. */
#ifndef STANDIN_CUDA_GRAPH_H
#define STANDIN_CUDA_GRAPH_H

#include <stddef.h>

#include "cuda_handles.h"

struct CUgraph_st {
    struct handle handle;
    const struct CUstream_st *origin;  /* where its capture began, and must end */
    const struct thread_state *thread; /* and on which thread; NULL: on any */
    _Atomic(size_t) nodes;
    struct graph_memory *memory; /* the nodes that are about memory; NULL: none */
    /* How many nodes are kernels, and what the last of them is called. */
    _Atomic(uint32_t) kernels;
    _Atomic(const char *) kernel_name;
};

_Static_assert(sizeof(struct CUgraph_st) <= HANDLE_BYTES, "a graph must fit its slot");

#endif
