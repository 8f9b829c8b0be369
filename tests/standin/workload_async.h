/* Slots of stream-ordered memory. */
#ifndef STANDIN_WORKLOAD_ASYNC_H
#define STANDIN_WORKLOAD_ASYNC_H

#include "workload.h"

/* Not yet added; it is freed on `stream`. */
struct kslot async_slot(enum memory_kind kind, void *address, size_t bytes, void *stream);

/* Of a new pool, on the thread's device or on the host. */
CUmemPoolProps pool_properties(bool on_host);

#endif
