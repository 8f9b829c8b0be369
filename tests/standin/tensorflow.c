/*
 * Stand-in libtensorflow_framework.so.2: the function by which TensorFlow's allocator
 * tells a profiler of its chunks. It gets a std::string_view, which is two arguments.
 */
#include <stddef.h>

__attribute__((visibility("default"))) void
standin_add_trace_me(void *allocator, size_t length, const char *name, const void *chunk,
                     long requested,
                     long bytes) __asm__("_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_"
                                         "viewIcSt11char_traitsIcEEPKvll");

void standin_add_trace_me(void *allocator, size_t length, const char *name, const void *chunk,
                          long requested, long bytes)
{
    (void)allocator, (void)length, (void)name, (void)chunk, (void)requested, (void)bytes;
}
