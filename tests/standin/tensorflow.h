/* What the allocators of TensorFlow, XLA and RMM call. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define ADD_TRACE_ME \
    "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll"

typedef void add_trace_me_fn(void *allocator, size_t length, const char *name, const void *chunk,
                             long requested, long bytes);
typedef void dump_memory_log_fn(void *allocator, size_t bytes, int end);

/* The hooks of the stand-in xla_cuda_plugin.so, which it does not export. */
struct standin_xla {
    add_trace_me_fn *add_trace_me;
    dump_memory_log_fn *dump_memory_log;
};

/* What RMM's pools call: pairs of blocks are returned in memory of the caller. */
struct rmm_block {
    char *pointer;
    size_t size;
    bool is_head;
};
struct rmm_blocks {
    struct rmm_block block[2];
};
#define RMM_POOL "_ZN3rmm10_RMM_26_102mr6detail25pool_memory_resource_impl"
#define RMM_ALLOCATE RMM_POOL "19allocate_from_blockERKNS2_5blockEm"
#define RMM_FREE RMM_POOL "10free_blockEPvm"
typedef struct rmm_blocks rmm_allocate_fn(void *pool, const struct rmm_block *from, size_t size);
typedef struct rmm_block rmm_free_fn(void *pool, void *pointer, size_t size);
