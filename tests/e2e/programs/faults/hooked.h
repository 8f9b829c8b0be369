/* A CUDA runtime with a callback in the middle of each call. */
#ifndef FAULTS_HOOKED_H
#define FAULTS_HOOKED_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called by this thread's calls after they have done their work; NULL for none. */
extern __thread void (*hook)(void);

int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);

#ifdef __cplusplus
}
#endif

#endif
