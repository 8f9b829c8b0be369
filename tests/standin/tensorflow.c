/*
 * Stand-in libtensorflow_framework.so.2 and xla_cuda_plugin.so: the function by which the
 * allocator of TensorFlow and XLA tells a profiler of its chunks. It gets a std::string_view,
 * which is two arguments. XLA's plugin exports one function that leads to all others.
 */
#include "tensorflow.h"

#ifdef XLA
#define VISIBLE "hidden"
#else
#define VISIBLE "default"
#endif
#define HOOK __attribute__((visibility(VISIBLE), noinline))

HOOK void standin_add_trace_me(void *allocator, size_t length, const char *name, const void *chunk,
                               long requested, long bytes) __asm__(ADD_TRACE_ME);

void standin_add_trace_me(void *allocator, size_t length, const char *name, const void *chunk,
                          long requested, long bytes)
{
    (void)allocator, (void)length, (void)name, (void)chunk, (void)requested, (void)bytes;
}

#ifdef XLA
HOOK void standin_dump_memory_log(void *allocator, size_t bytes, int end) __asm__(
    "_ZN3tsl12BFCAllocator13DumpMemoryLogEmNS_13AllocationEndE");

void standin_dump_memory_log(void *allocator, size_t bytes, int end)
{
    (void)allocator, (void)bytes, (void)end;
}

__attribute__((visibility("default"))) struct standin_xla GetPjrtApi(void)
{
    return (struct standin_xla){ standin_add_trace_me, standin_dump_memory_log };
}
#endif
