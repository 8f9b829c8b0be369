/* A CUDA runtime that calls back: what happens in the middle of a call is the program's choice. */
#ifndef FAULTS_HOOKED_H
#define FAULTS_HOOKED_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called by the calls of this thread, once they have done their work; none if NULL. */
extern __thread void (*hook)(void);

int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);

#ifdef __cplusplus
}
#endif

#endif
