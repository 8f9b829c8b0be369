/*
 * What the driver build of launch.cu loads, compiled with -cubin: all kernels
 * of launch_kernels.cuh, or with -DONLY=NAME one kernel of that name.
 */
#ifdef ONLY

extern "C" __global__ void ONLY(unsigned *runs)
{
    if (blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x + threadIdx.y + threadIdx.z == 0)
        atomicAdd(runs, 1);
}

#else

#include "launch_kernels.cuh"

#endif
