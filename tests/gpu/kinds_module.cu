/* Variables in a module of their own, for the driver build of kinds.cu. */
extern "C" {
__device__ char gp_table[1 << 20];
__constant__ char gp_limits[4096];

/* So that neither is removed as unused. */
__global__ void gp_read(char *out)
{
    out[threadIdx.x] = gp_table[threadIdx.x] + gp_limits[threadIdx.x];
}
}
