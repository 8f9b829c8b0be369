/* What copies and sets share: when they run, and their arguments. */
#ifndef STANDIN_CUDA_COPY_H
#define STANDIN_CUDA_COPY_H

#include "cuda_internal.h"

/* Whether a call waits for its transfer, or the stream that it is queued on. */
struct order {
    bool blocking;
    CUstream stream, null_stream;            /* `stream` of an asynchronous call */
    CUcontext destination_peer, source_peer; /* of a copy between devices */
};

/* Arguments for the bodies of DEFINE_TWINS. */
#define BLOCKING ((struct order){ .blocking = true, .null_stream = null_stream })
#define ON(stream_) ((struct order){ .stream = (stream_), .null_stream = null_stream })

/* The stream must exist; work on a captured one is `captured`. */
CUresult order_check(struct order order, bool *captured);
/* Whether a stand-in CUPTI is subscribed; then `activity` has the location. */
bool order_is_told(struct order order, struct activity *activity);

#endif
