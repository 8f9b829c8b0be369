/*
 * Stand-in libonnxruntime.so: the arena's table of virtual functions, as in ONNX Runtime 1.31. It
 * is linked without symbols, so that only the name of the type leads there.
 */
#include "tensorflow.h"

void *standin_allocate(struct ort_arena *arena, size_t size, void *stream);
void *standin_alloc_on_stream(struct ort_arena *arena, size_t size, void *stream);

__attribute__((noinline)) void *standin_allocate(struct ort_arena *arena, size_t size, void *stream)
{
    (void)stream;
    return size <= arena->left ? arena->next : NULL;
}

__asm__(".globl standin_alloc_on_stream\n"
        ".hidden standin_alloc_on_stream\n"
        "standin_alloc_on_stream:\n"
#ifdef __x86_64__
        "endbr64\n"
        "jmp standin_allocate\n"
#else
        "b standin_allocate\n"
#endif
);

static void *alloc(struct ort_arena *arena, size_t size)
{
    return standin_allocate(arena, size, NULL);
}

static void give_back(struct ort_arena *arena, void *block)
{
    (void)arena, (void)block;
}

static void other(void)
{
}

static const char name[] = "\0N11onnxruntime19StreamAwareBFCArenaE";
static const struct {
    const void *of_class, *name, *base;
} type = { other, name + 1, other };
static const struct {
    size_t to_top;
    const void *type;
    struct ort_functions functions;
} table = { 0,
            &type,
            { { other, other }, alloc, other, standin_alloc_on_stream, give_back, other } };

__attribute__((visibility("default"))) const struct ort_functions *OrtGetApiBase(void)
{
    return &table.functions;
}
