/*
 * The program of the real export of Nsight Systems (tests/data), which gpuprobe is compared with.
 *
 *     allocations [reset]
 *
 * With `reset` it ends with a reset of the device, for leak checkers that look then.
 */
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#define CK(x)                                                                              \
    do {                                                                                   \
        cudaError_t e = (x);                                                               \
        if (e) {                                                                           \
            printf("ERR %s:%d %s -> %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e)); \
        }                                                                                  \
    } while (0)
__global__ void k1(float *a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] += 1;
}
template <typename T> __global__ void k2(T *a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] *= 2;
}
int main(int c, char **v)
{
    CK(cudaSetDevice(0));
    CK(cudaFree(0));
    float *a, *b, *h, *m;
    cudaStream_t s;
    CK(cudaStreamCreate(&s));
    for (int i = 0; i < 7; i++) {
        CK(cudaMalloc(&a, 8 << 20));
        if (i < 5)
            CK(cudaFree(a));
    }
    CK(cudaMalloc(&a, 8 << 20));
    CK(cudaMallocHost(&h, 8 << 20));
    for (int i = 0; i < 3; i++) {
        CK(cudaMallocAsync(&b, 1 << 20, s));
        CK(cudaFreeAsync(b, s));
    }
    CK(cudaMallocManaged(&m, 1 << 20));
    CK(cudaFree(m));
    size_t pitch;
    void *p2;
    CK(cudaMallocPitch(&p2, &pitch, 1000, 100));
    CK(cudaFree(p2));
    cudaArray_t arr;
    cudaChannelFormatDesc d = cudaCreateChannelDesc<float>();
    CK(cudaMallocArray(&arr, &d, 64, 64));
    CK(cudaFreeArray(arr));
    for (int i = 0; i < 11; i++)
        CK(cudaMemcpy(a, h, 8 << 20, cudaMemcpyHostToDevice));
    for (int i = 0; i < 13; i++)
        CK(cudaMemcpy(h, a, 8 << 20, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 17; i++)
        CK(cudaMemcpyAsync(a, h, 8 << 20, cudaMemcpyHostToDevice, s));
    void *hp = malloc(8 << 20);
    for (int i = 0; i < 9; i++)
        CK(cudaMemcpy(a, hp, 8 << 20, cudaMemcpyHostToDevice));
    for (int i = 0; i < 19; i++)
        CK(cudaMemset(a, 0, 8 << 20));
    for (int i = 0; i < 101; i++)
        k1<<<1024, 256, 0, s>>>(a, 1024 * 256);
    for (int i = 0; i < 103; i++)
        k2<float><<<1024, 256>>>(a, 1024 * 256);
    cudaGraph_t g;
    cudaGraphExec_t ge;
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 5; i++)
        k1<<<1024, 256, 0, s>>>(a, 1024 * 256);
    CK(cudaStreamEndCapture(s, &g));
    CK(cudaGraphInstantiate(&ge, g, 0));
    for (int i = 0; i < 23; i++)
        CK(cudaGraphLaunch(ge, s));
    CK(cudaStreamSynchronize(s));
    CK(cudaDeviceSynchronize());
    CK(cudaFreeHost(h));
    if (c > 1 && !strcmp(v[1], "reset"))
        CK(cudaDeviceReset());
    return 0;
}
