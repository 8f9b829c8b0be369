/*
 * The kernels of launch.cu. Each but `empty` adds one to its counter, once per
 * launch, so that the GPU itself says how often it ran.
 */
#ifndef GPUPROBE_TESTS_GPU_LAUNCH_KERNELS_CUH
#define GPUPROBE_TESTS_GPU_LAUNCH_KERNELS_CUH

#include <cooperative_groups.h>

__device__ inline void count(unsigned *runs)
{
    unsigned block = blockIdx.x + blockIdx.y + blockIdx.z;
    unsigned thread = threadIdx.x + threadIdx.y + threadIdx.z;
    if (block + thread == 0)
        atomicAdd(runs, 1);
}

extern "C" __global__ void plain(unsigned *runs)
{
    count(runs);
}

namespace work {

__global__ void tick(unsigned *runs)
{
    count(runs);
}

template <typename T> __global__ void scale(unsigned *runs)
{
    count(runs);
}

template __global__ void scale<float>(unsigned *runs);
template __global__ void scale<double>(unsigned *runs);

__global__ void threaded(unsigned *runs)
{
    count(runs);
}

__global__ void shaped(unsigned *runs)
{
    count(runs);
}

__global__ void together(unsigned *runs)
{
    cooperative_groups::this_grid().sync();
    count(runs);
}

__global__ void empty(unsigned *)
{
}

} // namespace work

#endif
