/*
 * A CUDA program that knows exactly what it made the GPU do, and how long a part of that took.
 *
 *     activity STEP[=NUMBER[,NUMBER]] ...
 *
 * It runs the steps in order. After each it prints one JSON line with all runs of kernels, copies
 * by direction, memory sets, and allocations and frees by kind so far, with their bytes.
 *
 *     init            create the context
 *     mixed[=N]       N (default 50) rounds of a kernel, a copy each way and within the device, a
 *                     set, and an allocation and a free of each kind
 *     threads[=T,N]   T (default 4) threads, each N (default 200) rounds of a copy, a kernel and a
 *                     set on a stream of its own
 *     graph[=N]       capture 2 kernels, a copy and a set, and launch that N (default 10) times
 *     long[=MS,N]     N (default 5) runs of a kernel of MS (default 50) milliseconds, one after the
 *                     other: "long_ns" in the line has what CUDA events around each measured
 *     many[=N,T]      N (default 100000) launches of an empty kernel by each of T (default 1)
 *                     threads, as fast as they go; "ns_per_launch" of a thread in the line
 *     quick[=N]       N (default 10) kernels, then leave by _exit without any synchronisation
 *     wait            print the line, then read a line from standard input
 */
#include "steps.h"

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <unistd.h>

namespace {

constexpr size_t KiB = 1024, BUFFER_BYTES = 256 * KiB;
constexpr int ELEMENTS = BUFFER_BYTES / sizeof(float);

void must(cudaError_t error, const char *what)
{
    if (error) {
        fprintf(stderr, "activity: %s: CUDA error %d\n", what, error);
        exit(1);
    }
}

__global__ void scale(float *values, float factor, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] *= factor;
}

__global__ void empty()
{
}

__global__ void busy(long long ns)
{
    long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
}

/* ---- the truth -------------------------------------------------------- */

struct Sum {
    uint64_t count, bytes;
};

class Truth {
public:
    void add(const char *what, const char *name, uint64_t bytes, uint64_t count = 1)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        Sum &sum = sums_[what][name];
        sum.count += count;
        sum.bytes += count * bytes;
    }

    void print(const std::string &step, const std::string &extra)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        printf("{\"step\":\"%s\",\"pid\":%d%s", step.c_str(), getpid(), extra.c_str());
        for (const char *what : { "kernels", "copies", "sets", "allocations", "frees" }) {
            printf(",\"%s\":{", what);
            const char *separator = "";
            for (const auto &[name, sum] : sums_[what]) {
                printf("%s\"%s\":[%llu,%llu]", separator, name.c_str(),
                       (unsigned long long)sum.count, (unsigned long long)sum.bytes);
                separator = ",";
            }
            printf("}");
        }
        puts("}");
        fflush(stdout);
    }

private:
    std::mutex mutex_;
    std::map<std::string, std::map<std::string, Sum>> sums_;
};

Truth truth;

/* ---- steps ------------------------------------------------------------ */

void run_scale(float *values, cudaStream_t stream)
{
    scale<<<(ELEMENTS + 255) / 256, 256, 0, stream>>>(values, 1.5f, ELEMENTS);
    must(cudaGetLastError(), "scale");
}

template <typename Allocate, typename Free>
void allocate_and_free(const char *kind, size_t bytes, Allocate allocate, Free release)
{
    void *memory = nullptr;
    must(allocate(&memory, bytes), kind);
    truth.add("allocations", kind, bytes);
    must(release(memory), kind);
    truth.add("frees", kind, bytes);
}

void run_init(Step &)
{
    must(cudaFree(nullptr), "init");
}

/* Memory for a step; counted like all other. */
struct Buffers {
    float *device, *other, *pinned;

    Buffers()
    {
        must(cudaMalloc(&device, BUFFER_BYTES), "cudaMalloc");
        must(cudaMalloc(&other, BUFFER_BYTES), "cudaMalloc");
        must(cudaMallocHost(&pinned, BUFFER_BYTES), "cudaMallocHost");
        truth.add("allocations", "device", BUFFER_BYTES, 2);
        truth.add("allocations", "pinned", BUFFER_BYTES);
    }

    ~Buffers()
    {
        must(cudaFree(device), "cudaFree");
        must(cudaFree(other), "cudaFree");
        must(cudaFreeHost(pinned), "cudaFreeHost");
        truth.add("frees", "device", BUFFER_BYTES, 2);
        truth.add("frees", "pinned", BUFFER_BYTES);
    }
};

void run_mixed(Step &step)
{
    Buffers buffers;
    cudaStream_t stream;
    must(cudaStreamCreate(&stream), "cudaStreamCreate");
    for (long i = 0, rounds = step.number(0, 50); i < rounds; i++) {
        size_t bytes = (i % 64 + 1) * KiB;
        must(cudaMemset(buffers.device, 0, bytes), "cudaMemset");
        truth.add("sets", "set", bytes);
        must(cudaMemcpy(buffers.device, buffers.pinned, bytes, cudaMemcpyHostToDevice), "H2D");
        truth.add("copies", "H2D", bytes);
        must(cudaMemcpyAsync(buffers.other, buffers.device, bytes, cudaMemcpyDeviceToDevice,
                             stream),
             "D2D");
        truth.add("copies", "D2D", bytes);
        run_scale(buffers.device, stream);
        truth.add("kernels", "scale", 0);
        must(cudaMemcpyAsync(buffers.pinned, buffers.device, bytes, cudaMemcpyDeviceToHost, stream),
             "D2H");
        truth.add("copies", "D2H", bytes);
        must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        allocate_and_free("device", bytes, cudaMalloc<void>, cudaFree);
        allocate_and_free(
            "pinned", bytes, [](void **p, size_t size) { return cudaMallocHost(p, size); },
            cudaFreeHost);
        allocate_and_free(
            "managed", bytes, [](void **p, size_t size) { return cudaMallocManaged(p, size); },
            cudaFree);
        allocate_and_free(
            "device", bytes,
            [stream](void **p, size_t size) { return cudaMallocAsync(p, size, stream); },
            [stream](void *p) { return cudaFreeAsync(p, stream); });
    }
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

void work_of_thread(long rounds)
{
    Buffers buffers;
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (long i = 0; i < rounds; i++) {
        must(cudaMemcpyAsync(buffers.device, buffers.pinned, 4 * KiB, cudaMemcpyHostToDevice,
                             stream),
             "H2D");
        run_scale(buffers.device, stream);
        must(cudaMemsetAsync(buffers.device, 1, KiB, stream), "set");
    }
    truth.add("copies", "H2D", 4 * KiB, rounds);
    truth.add("kernels", "scale", 0, rounds);
    truth.add("sets", "set", KiB, rounds);
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

void run_threads(Step &step)
{
    std::vector<std::thread> threads;
    for (long i = 0, count = step.number(0, 4); i < count; i++)
        threads.emplace_back(work_of_thread, step.number(1, 200));
    for (std::thread &thread : threads)
        thread.join();
}

void run_graph(Step &step)
{
    Buffers buffers;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    must(cudaStreamCreate(&stream), "cudaStreamCreate");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin");
    run_scale(buffers.device, stream);
    must(cudaMemcpyAsync(buffers.pinned, buffers.device, KiB, cudaMemcpyDeviceToHost, stream),
         "D2H");
    must(cudaMemsetAsync(buffers.other, 0, 2 * KiB, stream), "set");
    run_scale(buffers.other, stream);
    must(cudaStreamEndCapture(stream, &graph), "end");
    must(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    long runs = step.number(0, 10);
    for (long i = 0; i < runs; i++)
        must(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    truth.add("kernels", "scale", 0, 2 * runs);
    truth.add("copies", "D2H", KiB, runs);
    truth.add("sets", "set", 2 * KiB, runs);
    must(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

void run_long(Step &step)
{
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "cudaEventCreate");
    must(cudaEventCreate(&end), "cudaEventCreate");
    const char *separator = "";
    step.extra = ",\"long_ns\":[";
    for (long i = 0, runs = step.number(1, 5); i < runs; i++) {
        float ms = 0;
        must(cudaEventRecord(begin), "cudaEventRecord");
        busy<<<1, 1>>>(step.number(0, 50) * 1000000LL);
        must(cudaEventRecord(end), "cudaEventRecord");
        must(cudaEventSynchronize(end), "cudaEventSynchronize");
        must(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        truth.add("kernels", "busy", 0);
        step.extra += separator + std::to_string((long long)(ms * 1e6));
        separator = ",";
    }
    step.extra += "]";
}

void launch_empty(long count, cudaStream_t stream = nullptr)
{
    for (long i = 0; i < count; i++)
        empty<<<1, 1, 0, stream>>>();
    must(cudaGetLastError(), "empty");
    truth.add("kernels", "empty", 0, count);
}

void launch_from_thread(long count)
{
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    launch_empty(count, stream);
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

void run_many(Step &step)
{
    launch_empty(1);
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    long count = step.number(0, 100000), crowd = step.number(1, 1);
    double start = now_ns(), launched;
    if (crowd == 1) {
        launch_empty(count);
        launched = now_ns();
        must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    } else {
        std::vector<std::thread> threads;
        for (long i = 0; i < crowd; i++)
            threads.emplace_back(launch_from_thread, count);
        for (std::thread &thread : threads)
            thread.join();
        launched = now_ns();
    }
    step.extra = ",\"ns_per_launch\":" + std::to_string((launched - start) / count);
}

void run_quick(Step &step)
{
    launch_empty(step.number(0, 10));
    truth.print("quick", "");
    _exit(0);
}

const StepRow step_table[] = {
    { "init", run_init, true },   { "mixed", run_mixed, true }, { "threads", run_threads, true },
    { "graph", run_graph, true }, { "long", run_long, true },   { "many", run_many, true },
    { "quick", run_quick, true }, { "wait", nullptr, false },
};

void print(const std::string &step, const std::string &extra)
{
    truth.print(step, extra);
}

/* The runtime does that by itself. */
void prepare_context()
{
}

const Program program = { "activity", prepare_context, print };

} // namespace

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run_step(program, step_table, argv[i]);
    return 0;
}
