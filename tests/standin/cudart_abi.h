/*
 * The runtime API as the stand-in libcudart exports it. cudaError_t is an enum
 * in CUDA's own header; see cuda_abi.h for why it is an int here.
 */
#ifndef STANDIN_CUDART_ABI_H
#define STANDIN_CUDART_ABI_H

#include <stddef.h>

typedef int cudaError_t;

enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInitializationError = 3,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDevice = 101,
};

/* The static library keeps its functions out of the dynamic symbol table of
 * the program that it is linked into, as the real one does. */
#ifdef CUDART_STATIC
#pragma GCC visibility push(hidden)
#else
#pragma GCC visibility push(default)
#endif

cudaError_t cudaMalloc(void **address, size_t bytes);
cudaError_t cudaFree(void *address);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaRuntimeGetVersion(int *version);

#pragma GCC visibility pop

#endif
