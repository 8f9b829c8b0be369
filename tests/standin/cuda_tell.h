/* Reporting of activity from within the stand-in libcuda. */
#ifndef STANDIN_CUDA_TELL_H
#define STANDIN_CUDA_TELL_H

#include "cuda_activity.h"
#include "cuda_internal.h"

extern _Atomic(const struct activity_listener *) activity_listener;

/* As in the real driver, the library named by CUDA_INJECTION64_PATH is loaded and called before the
 * first cuInit returns. */
void activity_inject(void);
/* The correlation id, and the time if none is given, are those of the call. */
void activity_tell(struct activity activity);
void activity_tell_end(uint32_t context);
void activity_forget(void);
/* The same text, for as long as the process lives. */
const char *activity_keep(const char *text);
/* Reports the contexts that are in use. */
void contexts_tell(void);
/* CUPTI's number of a stream. */
uint32_t stream_number(struct CUstream_st *stream);

static inline bool activity_is_wanted(void)
{
    return atomic_load_explicit(&activity_listener, memory_order_relaxed) != NULL;
}

/* An allocation or a release. */
static inline void tell_memory(bool release, uint32_t memory_kind, uint64_t address, uint64_t bytes,
                               bool asynchronous)
{
    CUcontext context;
    if (!activity_is_wanted() || context_current(&context))
        return;
    activity_tell((struct activity){ .kind = ACTIVITY_MEMORY,
                                     .device = (uint32_t)context->device,
                                     .context = context->number,
                                     .operation = release ? 2 : 1,
                                     .memory_kind = memory_kind,
                                     .address = address,
                                     .bytes = bytes,
                                     .asynchronous = asynchronous });
}

enum { MEMORY_PINNED = 2, MEMORY_DEVICE = 3, MEMORY_MANAGED = 5 };

#endif
