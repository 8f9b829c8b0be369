/* What the files of the stand-in runtime share; none of it is exported. */
#ifndef STANDIN_CUDART_INTERNAL_H
#define STANDIN_CUDART_INTERNAL_H

#include "cudart_abi.h"
#include "cuda_activity.h"
#include "cudart_driver.h"

/* Start and end of a call, for a stand-in CUPTI. */
void runtime_enter(struct activity_call *call, const char *function);
void runtime_leave(struct activity_call *call);

/* Remembers the result of the call, for its end; returns its argument. */
cudaError_t runtime_record(cudaError_t error);

/* Gives the thread a context before its first call that needs one. One that
 * the program made current through the driver API is left in place. */
cudaError_t runtime_bind_thread(void);

/* The primary context of `device`, retained at its first use. */
cudaError_t runtime_context(int device, CUcontext *context);

/* The library of the fat binary `handle`, loaded at its first use. */
cudaError_t runtime_library(void **handle, CUlibrary *library);

/* First statement of every function that reaches the driver. */
#define ENTER()                                                                     \
    int load_error = driver_load();                                                 \
    __attribute__((cleanup(runtime_leave), unused)) struct activity_call this_call; \
    runtime_enter(&this_call, __func__);                                            \
    if (!load_error && driver.take_failure)                                         \
        load_error = driver.take_failure(__func__);                                 \
    if (load_error)                                                                 \
    return runtime_record(load_error)

/* A function that needs a context. `result` is an expression of the parameters
 * and of `streams`, the driver's functions for the streams that it is about. */
#define DEFINE(symbol, parameters, result) DEFINE_WITH(symbol, legacy, parameters, result)

/* And its variant for per-thread default streams. */
#define DEFINE_TWINS(symbol, suffix, parameters, result) \
    DEFINE_WITH(symbol, legacy, parameters, result)      \
    DEFINE_WITH(symbol##suffix, per_thread, parameters, result)

#define DEFINE_WITH(symbol, member, parameters, result)            \
    cudaError_t symbol parameters                                  \
    {                                                              \
        ENTER();                                                   \
        const struct stream_driver *streams = &driver.member;      \
        (void)streams;                                             \
        cudaError_t bind_error = runtime_bind_thread();            \
        return runtime_record(bind_error ? bind_error : (result)); \
    }

#endif
