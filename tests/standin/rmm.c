/* Stand-in librmm.so: the functions of its pool, with the arguments of RMM 26.10. */
#include "tensorflow.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct rmm_blocks standin_rmm_allocate(void *pool, const struct rmm_block *from,
                                              size_t size) __asm__(RMM_ALLOCATE);
EXPORT struct rmm_block standin_rmm_free(void *pool, void *pointer, size_t size) __asm__(RMM_FREE);

struct rmm_blocks standin_rmm_allocate(void *pool, const struct rmm_block *from, size_t size)
{
    (void)pool;
    return (struct rmm_blocks){ { { from->pointer, size, from->is_head },
                                  { from->pointer + size, from->size - size, false } } };
}

struct rmm_block standin_rmm_free(void *pool, void *pointer, size_t size)
{
    (void)pool;
    return (struct rmm_block){ pointer, size, false };
}
