/* Backend: libcudart, shared or static, bound at link time. */
#include "workload_runtime.h"

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
    .work = &runtime_work,
    .kinds = &runtime_memory,
    .pools = &runtime_pools,
};

struct runtime runtime = {
#define FUNCTION(symbol) .symbol = symbol,
    RUNTIME_FUNCTIONS(FUNCTION)
#undef FUNCTION
};
