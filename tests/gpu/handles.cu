// Makes many of each kind of handle, from one line each, and says what that took from the GPU.
//
//     handles [COUNT]
//
// After each kind it prints a line of JSON, {"kind", "line", "count", "bytes"}, where the bytes are what
// cudaMemGetInfo has less than before, and waits for a line on standard input.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                \
    do {                                                                           \
        int error = static_cast<int>(call);                                        \
        if (error != 0) {                                                          \
            fprintf(stderr, "%s:%d: error %d of " #call "\n", __FILE__, __LINE__, error); \
            exit(1);                                                               \
        }                                                                          \
    } while (0)

static const char *const IMAGE = ".version 8.0\n.target sm_80\n.address_size 64\n"
                                 ".visible .global .align 16 .b8 table[65536];\n"
                                 ".visible .entry nothing()\n{\n\tret;\n}\n";

__global__ void work(int *value)
{
    atomicAdd(value, 1);
}

static int *value;
static int line;
static std::vector<cudaEvent_t> events;

static void make_stream()
{
    cudaStream_t stream;
    line = __LINE__; CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    work<<<1, 1, 0, stream>>>(value);
    CHECK(cudaStreamSynchronize(stream));
}

static void make_event()
{
    cudaEvent_t event;
    line = __LINE__; CHECK(cudaEventCreate(&event));
    CHECK(cudaEventRecord(event));
    events.push_back(event);
}

static void make_graph()
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    cudaKernelNodeParams params = {};
    void *arguments[] = {&value};
    params.func = reinterpret_cast<void *>(work);
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    CHECK(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < 64; i++)
        CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    line = __LINE__; CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, nullptr));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphDestroy(graph));
}

static void make_module()
{
    CUmodule module;
    CUfunction function;
    line = __LINE__; CHECK(cuModuleLoadData(&module, IMAGE));
    CHECK(cuModuleGetFunction(&function, module, "nothing"));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CHECK(cudaDeviceSynchronize());
}

static void make_context()
{
    CUcontext context, popped;
#if CUDART_VERSION >= 13000
    line = __LINE__; CHECK(cuCtxCreate(&context, nullptr, 0, 0));
#else
    line = __LINE__; CHECK(cuCtxCreate(&context, 0, 0));
#endif
    CHECK(cuCtxPopCurrent(&popped));
}

static void make(const char *kind, int count, void (*one)())
{
    size_t before, after, total;
    one(); // What is needed for the first one is not asked for again.
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemGetInfo(&before, &total));
    for (int i = 1; i < count; i++)
        one();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemGetInfo(&after, &total));
    printf("{\"kind\": \"%s\", \"line\": %d, \"count\": %d, \"bytes\": %lld}\n", kind, line, count,
           static_cast<long long>(before) - static_cast<long long>(after));
    fflush(stdout);
    getchar();
}

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : 256;
    CHECK(cudaMalloc(reinterpret_cast<void **>(&value), 1 << 20));
    make("streams", count, make_stream);
    make("events", 16 * count, make_event);
    make("graph executables", count, make_graph);
    make("modules", count, make_module);
    make("contexts", 9, make_context);
    return 0;
}
