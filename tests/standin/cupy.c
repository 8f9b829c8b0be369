/*
 * Stand-in cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so: functions that Cython writes of CuPy's
 * pool, with the fields of CuPy 14.2, and the compiler's clone of one. None is exported.
 */
#include "tensorflow.h"

#define FUNCTION(name) __attribute__((visibility("hidden"), noinline)) name

void FUNCTION(standin_init)(struct cupy_memory *pooled, struct cupy_chunk *chunk,
                            void *pool) __asm__(CUPY_INIT);
void FUNCTION(standin_free)(struct cupy_memory *pooled, int skip) __asm__(CUPY_FREE);
void FUNCTION(standin_free_clone)(struct cupy_memory *pooled) __asm__(CUPY_FREE ".constprop.313");

void standin_init(struct cupy_memory *pooled, struct cupy_chunk *chunk, void *pool)
{
    (void)pool;
    pooled->address = chunk->memory->address + chunk->offset;
    pooled->size = chunk->size;
}

void standin_free(struct cupy_memory *pooled, int skip)
{
    (void)skip;
    pooled->address = 0;
}

void standin_free_clone(struct cupy_memory *pooled)
{
    pooled->address = 0;
}

__attribute__((visibility("default"))) struct standin_cupy PyInit_memory(void)
{
    return (struct standin_cupy){ standin_init, standin_free, standin_free_clone };
}
