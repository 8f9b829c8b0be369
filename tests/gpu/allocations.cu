#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#define CK(x)                                                                              \
    do {                                                                                   \
        cudaError_t e = (x);                                                               \
        if (e) {                                                                           \
            printf("ERR %s:%d %s -> %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e)); \
        }                                                                                  \
    } while (0)
static double now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
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
    const char *mode = c > 1 ? v[1] : "all";
    long n = c > 2 ? atol(v[2]) : 1000;
    CK(cudaSetDevice(0));
    CK(cudaFree(0));
    if (!strcmp(mode, "all")) {
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
    } else if (!strcmp(mode, "malloc")) {
        float *a;
        double t = now();
        for (long i = 0; i < n; i++) {
            cudaMalloc(&a, 2048);
            cudaFree(a);
        }
        printf("malloc+free %.1f ns/pair\n", (now() - t) / n);
    } else if (!strcmp(mode, "launch")) {
        float *a;
        CK(cudaMalloc(&a, 1 << 20));
        k1<<<1, 32>>>(a, 32);
        cudaDeviceSynchronize();
        double t = now();
        for (long i = 0; i < n; i++)
            k1<<<1, 32>>>(a, 32);
        double e = now();
        cudaDeviceSynchronize();
        printf("launch %.1f ns, total %.1f ns\n", (e - t) / n, (now() - t) / n);
    } else if (!strcmp(mode, "memcpy")) {
        float *a;
        float *h;
        CK(cudaMalloc(&a, 1 << 20));
        CK(cudaMallocHost(&h, 1 << 20));
        double t = now();
        for (long i = 0; i < n; i++)
            cudaMemcpy(a, h, 4096, cudaMemcpyHostToDevice);
        printf("memcpy4k %.1f ns\n", (now() - t) / n);
    } else if (!strcmp(mode, "copies")) {
        float *a;
        float *h;
        long sz = 256 << 20;
        CK(cudaMalloc(&a, sz));
        h = (float *)malloc(sz);
        memset(h, 1, sz);
        float *hp;
        CK(cudaMallocHost(&hp, sz));
        for (int i = 0; i < 6; i++) {
            double t = now();
            CK(cudaMemcpy(a, h, sz, cudaMemcpyHostToDevice));
            double e = now();
            printf("pageable H2D %.3e B/s\n", sz / ((e - t) * 1e-9));
            t = now();
            CK(cudaMemcpy(a, hp, sz, cudaMemcpyHostToDevice));
            e = now();
            printf("pinned H2D %.3e B/s\n", sz / ((e - t) * 1e-9));
            t = now();
            CK(cudaMemcpy(hp, a, sz, cudaMemcpyDeviceToHost));
            e = now();
            printf("pinned D2H %.3e B/s\n", sz / ((e - t) * 1e-9));
        }
    }
    // For leak checkers that check at context destruction.
    if (c > 3 && !strcmp(v[3], "reset"))
        CK(cudaDeviceReset());
    return 0;
}
