/* What the allocator of TensorFlow and XLA calls. */
#pragma once

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
