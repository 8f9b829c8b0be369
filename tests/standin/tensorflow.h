/* What the allocators of TensorFlow, XLA, RMM, CuPy and ONNX Runtime call. */
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

/* What CuPy's pools call: objects of Python, whose first fields are a count of references and a
 * type. */
struct cupy_memory {
    void *object[2];
    size_t address;
    size_t size;
};
struct cupy_chunk {
    void *object[2];
    void *functions;
    struct cupy_memory *memory;
    size_t offset;
    size_t size;
};
#define CUPY_OBJECT(length, name) "P" length "__pyx_obj_4cupy_4cuda_6memory_" name
#define CUPY_INIT                                                                             \
    "_ZL48__pyx_f_4cupy_4cuda_6memory_12PooledMemory__init" CUPY_OBJECT("42", "PooledMemory") \
        CUPY_OBJECT("36", "_Chunk") "P7_object"
#define CUPY_FREE \
    "_ZL47__pyx_f_4cupy_4cuda_6memory_12PooledMemory_free" CUPY_OBJECT("42", "PooledMemory") "i"
struct standin_cupy {
    void (*init)(struct cupy_memory *pooled, struct cupy_chunk *chunk, void *pool);
    void (*free)(struct cupy_memory *pooled, int skip);
    void (*free_clone)(struct cupy_memory *pooled);
};

/* ONNX Runtime's arena, and its virtual functions. */
struct ort_arena {
    const struct ort_functions *functions;
    char *next;
    size_t left;
};
struct ort_functions {
    void (*destructors[2])(void);
    void *(*alloc)(struct ort_arena *arena, size_t size);
    void (*is_stream_aware)(void);
    void *(*alloc_on_stream)(struct ort_arena *arena, size_t size, void *stream);
    void (*free)(struct ort_arena *arena, void *block);
    void (*reserve)(void);
};
