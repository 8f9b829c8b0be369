/*
 * A program that makes objects in one line and destroys none of them, for some seconds.
 *
 *     objects NAME SECONDS
 *
 *     streams   a stream for each call
 *     events    an event for each call
 *     modules   a module, with a table, for each unit of work
 *     contexts  a context for each decoder
 *     graphs    a graph with a node that allocates and one that frees, which are destroyed: the memory is not
 *
 * Its last line is JSON: the line, how many objects, bytes that the program knows, and by how many bytes the GPU's free
 * memory fell meanwhile.
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <iterator>
#include <unistd.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        int error_ = (int)(call);                                                \
        if (error_) {                                                            \
            fprintf(stderr, "%s:%d: error %d\n", __FILE__, __LINE__, error_);    \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

static const size_t NODE_BYTES = 4 << 20, TABLE_BYTES = 1 << 20;
static const char *const IMAGE = ".version 8.0\n.target sm_80\n.address_size 64\n"
                                 ".visible .global .align 16 .b8 table[1048576];\n"
                                 ".visible .entry unit()\n{\n\tret;\n}\n";
static int line;
static size_t known_bytes;

__global__ void touch(char *bytes)
{
    if (bytes)
        bytes[threadIdx.x] = 1;
}

/* Notes the line of a call. */
#define HERE(call)       \
    do {                 \
        line = __LINE__; \
        CHECK(call);     \
    } while (0)

__attribute__((noinline)) static void make_stream()
{
    cudaStream_t stream;
    HERE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    touch<<<1, 1, 0, stream>>>(nullptr);
}

__attribute__((noinline)) static void make_event()
{
    cudaEvent_t event;
    HERE(cudaEventCreate(&event));
    CHECK(cudaEventRecord(event, 0));
}

__attribute__((noinline)) static void load_module()
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr table;
    size_t bytes;
    HERE(cuModuleLoadData(&module, IMAGE));
    CHECK(cuModuleGetFunction(&function, module, "unit"));
    CHECK(cuModuleGetGlobal(&table, &bytes, module, "table"));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    known_bytes += TABLE_BYTES;
}

__attribute__((noinline)) static void make_context()
{
    CUcontext context, popped;
#if CUDA_VERSION >= 13000
    HERE(cuCtxCreate(&context, nullptr, 0, 0));
#else
    HERE(cuCtxCreate(&context, 0, 0));
#endif
    CHECK(cuCtxPopCurrent(&popped));
}

__attribute__((noinline)) static void run_graph()
{
    static cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    char *kept, *scratch;
    if (!stream)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    HERE(cudaMallocAsync((void **)&kept, NODE_BYTES, stream));
    CHECK(cudaMallocAsync((void **)&scratch, NODE_BYTES, stream));
    touch<<<1, 32, 0, stream>>>(kept);
    touch<<<1, 32, 0, stream>>>(scratch);
    CHECK(cudaFreeAsync(scratch, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    known_bytes += NODE_BYTES;
}

static const struct {
    const char *name;
    void (*make)();
    int pause_ms;
} KINDS[] = {
    { "streams", make_stream, 50 },   { "events", make_event, 5 },      { "modules", load_module, 250 },
    { "contexts", make_context, 2500 }, { "graphs", run_graph, 200 },
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: objects NAME SECONDS\n");
        return 2;
    }
    const auto *kind = KINDS;
    while (strcmp(kind->name, argv[1]))
        if (++kind == std::end(KINDS)) {
            fprintf(stderr, "no %s\n", argv[1]);
            return 2;
        }
    size_t before, after, total;
    CHECK(cudaMemGetInfo(&before, &total));
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(argv[2]));
    long made = 0;
    for (; std::chrono::steady_clock::now() < end; made++) {
        kind->make();
        usleep(kind->pause_ms * 1000);
    }
    CHECK(cudaMemGetInfo(&after, &total));
    printf("{\"step\": \"objects\", \"line\": %d, \"made\": %ld, \"bytes\": %zu, \"grown\": %lld}\n", line, made,
           known_bytes, (long long)before - (long long)after);
    return 0;
}
