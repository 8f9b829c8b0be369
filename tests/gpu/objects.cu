/*
 * A program that goes on in steps, and leaks in one line of its steps or not at all.
 *
 *     objects NAME STEPS PAUSE_MS
 *
 * In each step it makes, and keeps to its end,
 *     streams      a stream
 *     events       an event
 *     executables  an executable of a graph
 *     graphs       the memory of a graph with a node that allocates and one that frees, which is destroyed
 *     modules      a module, with a table
 *     libraries    the same by cuLibraryLoadData
 *     contexts     a context
 *     plans        a plan of cuFFT
 *     blas         a handle of cuBLAS
 *     pinned       a block of page-locked memory
 *
 * Or it leaks nothing:
 *     plan_cache   plans of shapes that come at random, each made once
 *     async_pool   stream-ordered blocks of a pool that keeps its memory
 *     arena        chunks, each twice as large as the one before, until there is enough
 *     refused      more than there is, and then less
 *     threads      threads with a stream and a buffer of their own
 *     handles      streams, events and executables that are destroyed, beside a set that is made at first use
 *
 * When CUDA is up it prints a JSON line, and after its steps another: the line that leaks, how many objects, bytes that
 * the program knows, and by how many bytes the GPU's free memory fell meanwhile. After each it reads a line.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <cufft.h>
#include <iterator>
#include <map>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

#define CHECK(call)                                                              \
    do {                                                                         \
        int error_ = (int)(call);                                                \
        if (error_) {                                                            \
            fprintf(stderr, "%s:%d: error %d\n", __FILE__, __LINE__, error_);    \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

/* Notes the line of a call that leaks. */
#define LEAK(call)       \
    do {                 \
        line = __LINE__; \
        CHECK(call);     \
    } while (0)

static const size_t MIB = 1 << 20, NODE_BYTES = 4 * MIB, TABLE_BYTES = MIB;
static const int PLAN_LENGTH = 1000003;
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

__attribute__((noinline)) static void make_stream(int)
{
    cudaStream_t stream;
    LEAK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    touch<<<1, 1, 0, stream>>>(nullptr);
}

__attribute__((noinline)) static void make_event(int)
{
    cudaEvent_t event;
    LEAK(cudaEventCreate(&event));
    CHECK(cudaEventRecord(event, 0));
}

static cudaStream_t own_stream()
{
    static cudaStream_t stream;
    if (!stream)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaGraph_t kernel_graph()
{
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(own_stream(), cudaStreamCaptureModeThreadLocal));
    touch<<<1, 1, 0, own_stream()>>>(nullptr);
    CHECK(cudaStreamEndCapture(own_stream(), &graph));
    return graph;
}

__attribute__((noinline)) static void make_executable(int)
{
    cudaGraph_t graph = kernel_graph();
    cudaGraphExec_t executable;
    LEAK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, own_stream()));
    CHECK(cudaGraphDestroy(graph));
}

__attribute__((noinline)) static void run_graph(int)
{
    cudaStream_t stream = own_stream();
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    char *kept, *scratch;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    LEAK(cudaMallocAsync((void **)&kept, NODE_BYTES, stream));
    CHECK(cudaMallocAsync((void **)&scratch, NODE_BYTES, stream));
    touch<<<1, 32, 0, stream>>>(kept);
    touch<<<1, 32, 0, stream>>>(scratch);
    CHECK(cudaFreeAsync(scratch, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    known_bytes += NODE_BYTES;
}

__attribute__((noinline)) static void load_module(int)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr table;
    size_t bytes;
    LEAK(cuModuleLoadData(&module, IMAGE));
    CHECK(cuModuleGetFunction(&function, module, "unit"));
    CHECK(cuModuleGetGlobal(&table, &bytes, module, "table"));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    known_bytes += TABLE_BYTES;
}

__attribute__((noinline)) static void load_library(int)
{
    CUlibrary library;
    CUdeviceptr table;
    size_t bytes;
    LEAK(cuLibraryLoadData(&library, IMAGE, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cuLibraryGetGlobal(&table, &bytes, library, "table"));
    known_bytes += TABLE_BYTES;
}

__attribute__((noinline)) static void make_context(int)
{
    CUcontext context, popped;
#if CUDA_VERSION >= 13000
    LEAK(cuCtxCreate(&context, nullptr, 0, 0));
#else
    LEAK(cuCtxCreate(&context, 0, 0));
#endif
    CHECK(cuCtxPopCurrent(&popped));
}

__attribute__((noinline)) static void make_plan(int)
{
    cufftHandle plan;
    size_t workspace;
    LEAK(cufftPlan1d(&plan, PLAN_LENGTH, CUFFT_C2C, 1));
    CHECK(cufftGetSize(plan, &workspace));
    known_bytes += workspace;
}

__attribute__((noinline)) static void make_blas(int)
{
    cublasHandle_t handle;
    LEAK(cublasCreate(&handle));
}

__attribute__((noinline)) static void lock_block(int)
{
    char *block;
    LEAK(cudaMallocHost((void **)&block, MIB));
    known_bytes += MIB;
}

static std::map<int, cufftHandle> plans;

static void use_plan(int)
{
    static std::mt19937 random(1);
    const int length = PLAN_LENGTH + random() % 32;
    if (!plans.count(length))
        CHECK(cufftPlan1d(&plans[length], length, CUFFT_C2C, 1));
}

static void destroy_plans()
{
    for (auto &[length, plan] : plans)
        CHECK(cufftDestroy(plan));
}

static void use_pool(int number)
{
    cudaStream_t stream = own_stream();
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    char *blocks[4];
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    for (auto &block : blocks)
        CHECK(cudaMallocAsync((void **)&block, (1 + number++ % 7) * MIB, stream));
    for (auto block : blocks)
        CHECK(cudaFreeAsync(block, stream));
}

static std::vector<char *> chunks;

/* One with each power of two, the last after 256 steps. */
static void grow_arena(int number)
{
    char *chunk;
    if ((number & (number - 1)) || number > 256)
        return;
    CHECK(cudaMalloc((void **)&chunk, (number + 1) * MIB));
    chunks.push_back(chunk);
}

static void free_arena()
{
    for (auto chunk : chunks)
        CHECK(cudaFree(chunk));
}

static void ask_for_less(int)
{
    char *block;
    size_t bytes = (size_t)1 << 50;
    while (cudaMalloc((void **)&block, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        bytes /= 1 << 10;
    }
    CHECK(cudaFree(block));
}

static void work()
{
    cudaStream_t stream;
    char *buffer;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&buffer, 3 * MIB));
    CHECK(cudaMemsetAsync(buffer, 0, 3 * MIB, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(buffer));
    CHECK(cudaStreamDestroy(stream));
}

static void use_threads(int)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back(work);
    for (auto &thread : threads)
        thread.join();
}

static void use_handles(int number)
{
    static cudaStream_t set[32];
    cudaStream_t stream;
    cudaEvent_t event;
    cudaGraphExec_t executable;
    cudaGraph_t graph = kernel_graph();
    for (auto &one : set)
        if (number == 0)
            CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
}

static const struct {
    const char *name;
    void (*step)(int number);
    void (*end)();
} KINDS[] = {
    { "streams", make_stream },   { "events", make_event },      { "executables", make_executable },
    { "graphs", run_graph },      { "modules", load_module },    { "libraries", load_library },
    { "contexts", make_context }, { "plans", make_plan },        { "blas", make_blas },
    { "pinned", lock_block },     { "async_pool", use_pool },    { "plan_cache", use_plan, destroy_plans },
    { "refused", ask_for_less },  { "threads", use_threads },    { "arena", grow_arena, free_arena },
    { "handles", use_handles },
};

static void wait_for_line()
{
    fflush(stdout);
    for (int c = getchar(); c != '\n' && c != EOF;)
        c = getchar();
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: objects NAME STEPS PAUSE_MS\n");
        return 2;
    }
    const auto *kind = KINDS;
    while (strcmp(kind->name, argv[1]))
        if (++kind == std::end(KINDS)) {
            fprintf(stderr, "no %s\n", argv[1]);
            return 2;
        }
    const int steps = atoi(argv[2]);
    size_t before, after, total;
    CHECK(cudaMemGetInfo(&before, &total));
    printf("{\"step\": \"ready\"}\n");
    wait_for_line();
    for (int number = 0; number < steps; number++) {
        kind->step(number);
        usleep(atoi(argv[3]) * 1000);
    }
    CHECK(cudaMemGetInfo(&after, &total));
    char leak[64] = "null";
    if (line)
        snprintf(leak, sizeof leak, "{\"file\": \"objects.cu\", \"line\": %d}", line);
    printf("{\"step\": \"loop\", \"leak\": %s, \"made\": %d, \"bytes\": %zu, \"grown\": %lld}\n", leak, steps, known_bytes,
           (long long)before - (long long)after);
    wait_for_line();
    if (kind->end)
        kind->end();
    return 0;
}
