/*
 * Stand-in libcuda: memory nodes of graphs.
 *
 * A node of allocation has its address from the start, for as long as a graph
 * has the node or the memory is live. Launches make it live; so it is freed like
 * any other memory, or by a node of some graph.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

/* Under `lock`, as all here. */
static struct graph_block {
    struct graph_block *next;
    uint64_t address, bytes;
    int device;
    bool live;
    size_t nodes; /* of graphs, executable or not, that are about it */
} * blocks;

struct graph_memory {
    size_t count;
    struct node {
        struct graph_block *block;
        bool frees;
    } nodes[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *checked(void *memory)
{
    if (!memory) {
        fputs("stand-in CUDA: no host memory for a graph\n", stderr);
        abort();
    }
    return memory;
}

static struct graph_block *find(uint64_t address)
{
    struct graph_block *block = blocks;
    while (block && block->address != address)
        block = block->next;
    return block;
}

/* Ends the block unless a launch can make it live again. */
static void settle(struct graph_block *block)
{
    if (block->live || block->nodes)
        return;
    struct graph_block **link = &blocks;
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    space_release(block->address, block->bytes);
    free(block);
}

static void end(struct graph_block *block)
{
    block->live = false;
    blocks_uncharge(block->device, block->bytes);
}

static void add_node(struct CUgraph_st *graph, struct graph_block *block, bool frees)
{
    struct graph_memory *memory = graph->memory;
    size_t count = memory ? memory->count : 0;
    memory = checked(realloc(memory, sizeof *memory + (count + 1) * sizeof *memory->nodes));
    memory->nodes[count] = (struct node){ block, frees };
    memory->count = count + 1;
    graph->memory = memory;
    block->nodes++;
    atomic_fetch_add(&graph->nodes, 1);
}

CUresult graph_add_allocation(struct CUgraph_st *graph, int device, size_t bytes,
                              CUdeviceptr *address)
{
    uint64_t taken = space_take(bytes, 0);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct graph_block *block = checked(malloc(sizeof *block));
    pthread_mutex_lock(&lock);
    *block = (struct graph_block){ blocks, taken, bytes, device, false, 0 };
    blocks = block;
    add_node(graph, block, false);
    pthread_mutex_unlock(&lock);
    *address = taken;
    return CUDA_SUCCESS;
}

/* Only memory that a graph allocates can be freed by a graph. */
CUresult graph_add_free(struct CUgraph_st *graph, CUdeviceptr address)
{
    pthread_mutex_lock(&lock);
    struct graph_block *block = find(address);
    if (block)
        add_node(graph, block, true);
    pthread_mutex_unlock(&lock);
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct graph_memory *graph_memory_copy(const struct graph_memory *memory)
{
    if (!memory)
        return NULL;
    pthread_mutex_lock(&lock);
    size_t bytes = sizeof *memory + memory->count * sizeof *memory->nodes;
    struct graph_memory *copy = memcpy(checked(malloc(bytes)), memory, bytes);
    for (size_t i = 0; i < copy->count; i++)
        copy->nodes[i].block->nodes++;
    pthread_mutex_unlock(&lock);
    return copy;
}

/* Live memory stays live. */
void graph_memory_delete(struct graph_memory *memory)
{
    if (!memory)
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < memory->count; i++) {
        memory->nodes[i].block->nodes--;
        settle(memory->nodes[i].block);
    }
    pthread_mutex_unlock(&lock);
    free(memory);
}

/* Whether a graph with these nodes could be launched now. */
static bool can_launch(const struct graph_memory *memory)
{
    for (size_t i = 0; i < memory->count; i++) {
        const struct graph_block *block = memory->nodes[i].block;
        bool live = block->live;
        for (size_t j = 0; j < i; j++)
            if (memory->nodes[j].block == block)
                live = !memory->nodes[j].frees;
        if (live != memory->nodes[i].frees)
            return false;
    }
    return true;
}

CUresult graph_memory_launch(const struct graph_memory *memory, bool free_first)
{
    if (!memory)
        return CUDA_SUCCESS;
    CUresult error = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; free_first && i < memory->count; i++)
        if (!memory->nodes[i].frees && memory->nodes[i].block->live)
            end(memory->nodes[i].block);
    if (!can_launch(memory))
        error = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; !error && i < memory->count; i++) {
        struct graph_block *block = memory->nodes[i].block;
        if (memory->nodes[i].frees)
            end(block);
        else if (blocks_charge(block->device, block->bytes))
            block->live = true;
        else
            error = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

bool graph_memory_release(CUdeviceptr address)
{
    pthread_mutex_lock(&lock);
    struct graph_block *block = find(address);
    bool live = block && block->live;
    if (live) {
        end(block);
        settle(block);
    }
    pthread_mutex_unlock(&lock);
    return live;
}
