/* Backend: libcudart, shared or static, bound at link time. */
#include "cudart_abi.h"
#include "workload_backend.h"

struct api api = {
    .name = "runtime",
    .alloc = cudaMalloc,
    .release = cudaFree,
    .set_device = cudaSetDevice,
    .get_device = cudaGetDevice,
    .device_count = cudaGetDeviceCount,
    .memory = cudaMemGetInfo,
    .synchronize = cudaDeviceSynchronize,
    .reset = cudaDeviceReset,
};
