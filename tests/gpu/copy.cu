/*
 * A CUDA program that knows exactly what it copied, and how long that took.
 *
 *     copy STEP[=NUMBER[,NUMBER]] ...
 *
 * It runs the steps in order. After each it prints one JSON line with all
 * copies and memory sets so far, by direction, kind of call and size.
 *
 *     init            create the context, allocate all memory
 *     linear          copies between host and device, and within the device, of
 *                     1 byte to 8 MiB, from and to pinned and pageable memory
 *     async           the same on a stream
 *     planes          copies of rectangles, each way, synchronous and not
 *     volumes         copies of cuboids, each way, synchronous and not
 *     sets            memory sets: synchronous, on a stream, of a rectangle
 *     captured        capture 2 copies and a set into a graph, launch it 3 times
 *     threads[=T,N]   T (default 4) threads, each N (default 500) copies to the
 *                     device on a stream of its own
 *     unified         copies whose direction only the addresses tell, and one
 *                     within the host; not in the line
 *     pinned[=M,N]    N (default 32) timed copies of M (default 64) MiB to the
 *                     device and N back, from and to pinned memory
 *     pageable[=M,N]  the same with pageable memory
 *     wait            print the line, then read a line from standard input
 */
#include "steps.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include <unistd.h>

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;
constexpr size_t BUFFER_BYTES = 64 * MiB;

/* From 64 KiB + 1 byte on, a copy from pageable memory no longer returns once its bytes are
 * staged. */
constexpr size_t SIZES[] = { 1, 4 * KiB, 64 * KiB, 64 * KiB + 1, MiB, 8 * MiB };

char *device_memory, *device_other;
char *pinned_memory, *pageable_memory;
cudaStream_t main_stream;

void must(cudaError_t error, const char *what)
{
    if (error) {
        fprintf(stderr, "copy: %s: CUDA error %d\n", what, error);
        exit(1);
    }
}

/* ---- the truth -------------------------------------------------------- */

enum Call { SYNC, ASYNC };

struct Timed {
    uint64_t bytes;
    double seconds, peak_bytes_per_second;
};

class Truth {
public:
    void add(const char *direction, Call call, size_t bytes, uint64_t calls = 1)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        moves_[{ direction, call, bytes }] += calls;
    }

    void add_timed(const char *name, const char *direction, size_t bytes, double seconds)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        Timed &timed = timed_[{ name, direction }];
        timed.bytes += bytes;
        timed.seconds += seconds;
        timed.peak_bytes_per_second = std::max(timed.peak_bytes_per_second, bytes / seconds);
    }

    void add_captured(uint64_t calls)
    {
        captured_ += calls;
    }

    void print(const std::string &step, const std::string &extra)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        printf("{\"step\":\"%s\",\"pid\":%d,\"captured\":%llu%s,\"moves\":[", step.c_str(),
               getpid(), (unsigned long long)captured_, extra.c_str());
        const char *separator = "";
        for (const auto &[move, calls] : moves_) {
            const auto &[direction, call, bytes] = move;
            printf("%s{\"direction\":\"%s\",\"call\":\"%s\",\"size\":%zu,\"calls\":%llu}",
                   separator, direction.c_str(), call == SYNC ? "sync" : "async", bytes,
                   (unsigned long long)calls);
            separator = ",";
        }
        printf("],\"timed\":[");
        separator = "";
        for (const auto &[key, timed] : timed_) {
            printf("%s{\"memory\":\"%s\",\"direction\":\"%s\",\"bytes\":%llu,\"seconds\":%.9f,"
                   "\"peak_bytes_per_second\":%.0f}",
                   separator, key.first.c_str(), key.second.c_str(),
                   (unsigned long long)timed.bytes, timed.seconds, timed.peak_bytes_per_second);
            separator = ",";
        }
        puts("]}");
        fflush(stdout);
    }

private:
    std::mutex mutex_;
    std::map<std::tuple<std::string, Call, size_t>, uint64_t> moves_;
    std::map<std::pair<std::string, std::string>, Timed> timed_;
    uint64_t captured_ = 0;
};

Truth truth;

/* ---- copies of each shape --------------------------------------------- */

/* The destination of a copy. */
struct Route {
    const char *direction;
    cudaMemcpyKind kind;
    char *destination, *source;
};

/* With the memory of the current step; host memory both pinned and pageable. */
std::vector<Route> routes()
{
    return {
        { "H2D", cudaMemcpyHostToDevice, device_memory, pinned_memory },
        { "H2D", cudaMemcpyHostToDevice, device_memory, pageable_memory },
        { "D2H", cudaMemcpyDeviceToHost, pinned_memory, device_memory },
        { "D2H", cudaMemcpyDeviceToHost, pageable_memory, device_memory },
        { "D2D", cudaMemcpyDeviceToDevice, device_other, device_memory },
    };
}

void copy(const Route &route, Call call, size_t bytes)
{
    if (call == SYNC)
        must(cudaMemcpy(route.destination, route.source, bytes, route.kind), "cudaMemcpy");
    else
        must(cudaMemcpyAsync(route.destination, route.source, bytes, route.kind, main_stream),
             "cudaMemcpyAsync");
    truth.add(route.direction, call, bytes);
}

/* The pitch exceeds the row length on either side. */
void copy_plane(const Route &route, Call call, size_t width, size_t height)
{
    size_t to_pitch = width + 512, from_pitch = width + 1024;
    if (call == SYNC)
        must(cudaMemcpy2D(route.destination, to_pitch, route.source, from_pitch, width, height,
                          route.kind),
             "cudaMemcpy2D");
    else
        must(cudaMemcpy2DAsync(route.destination, to_pitch, route.source, from_pitch, width, height,
                               route.kind, main_stream),
             "cudaMemcpy2DAsync");
    truth.add(route.direction, call, width * height);
}

void copy_volume(const Route &route, Call call, size_t width, size_t height, size_t depth)
{
    cudaMemcpy3DParms parameters = {};
    parameters.srcPtr = make_cudaPitchedPtr(route.source, width + 1024, width, height + 1);
    parameters.dstPtr = make_cudaPitchedPtr(route.destination, width + 512, width, height);
    parameters.extent = make_cudaExtent(width, height, depth);
    parameters.kind = route.kind;
    if (call == SYNC)
        must(cudaMemcpy3D(&parameters), "cudaMemcpy3D");
    else
        must(cudaMemcpy3DAsync(&parameters, main_stream), "cudaMemcpy3DAsync");
    truth.add(route.direction, call, width * height * depth);
}

/* ---- the steps -------------------------------------------------------- */

void prepare()
{
    if (device_memory)
        return;
    must(cudaMalloc(&device_memory, BUFFER_BYTES), "cudaMalloc");
    must(cudaMalloc(&device_other, BUFFER_BYTES), "cudaMalloc");
    must(cudaMallocHost(&pinned_memory, BUFFER_BYTES), "cudaMallocHost");
    pageable_memory = static_cast<char *>(malloc(BUFFER_BYTES));
    /* So that no copy pays for the first use of a page. */
    memset(pageable_memory, 1, BUFFER_BYTES);
    memset(pinned_memory, 1, BUFFER_BYTES);
    must(cudaStreamCreate(&main_stream), "cudaStreamCreate");
}

void run_init(Step &)
{
}

void run_linear(Step &)
{
    for (const Route &route : routes())
        for (size_t bytes : SIZES)
            copy(route, SYNC, bytes);
}

void run_async(Step &)
{
    for (const Route &route : routes())
        for (size_t bytes : SIZES)
            copy(route, ASYNC, bytes);
    must(cudaStreamSynchronize(main_stream), "synchronize");
}

void run_planes(Step &)
{
    for (const Route &route : routes())
        for (Call call : { SYNC, ASYNC }) {
            copy_plane(route, call, 1000, 7);
            copy_plane(route, call, 3 * KiB, 1000);
        }
    must(cudaStreamSynchronize(main_stream), "synchronize");
}

void run_volumes(Step &)
{
    for (const Route &route : routes())
        for (Call call : { SYNC, ASYNC }) {
            copy_volume(route, call, 100, 5, 3);
            copy_volume(route, call, 2 * KiB, 100, 10);
        }
    must(cudaStreamSynchronize(main_stream), "synchronize");
}

void run_sets(Step &)
{
    for (size_t bytes : SIZES) {
        must(cudaMemset(device_memory, 7, bytes), "cudaMemset");
        truth.add("set", SYNC, bytes);
        must(cudaMemsetAsync(device_memory, 7, bytes, main_stream), "cudaMemsetAsync");
        truth.add("set", ASYNC, bytes);
    }
    must(cudaMemset2D(device_memory, 4 * KiB, 7, 1000, 50), "cudaMemset2D");
    truth.add("set", SYNC, 1000 * 50);
    must(cudaStreamSynchronize(main_stream), "synchronize");
}

void run_captured(Step &)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    must(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal), "begin capture");
    must(cudaMemcpyAsync(device_memory, pinned_memory, MiB, cudaMemcpyHostToDevice, main_stream),
         "captured copy");
    must(cudaMemcpyAsync(device_other, device_memory, MiB, cudaMemcpyDeviceToDevice, main_stream),
         "captured copy");
    must(cudaMemsetAsync(device_memory, 7, MiB, main_stream), "captured set");
    must(cudaStreamEndCapture(main_stream, &graph), "end capture");
    must(cudaGraphInstantiate(&executable, graph, 0), "instantiate graph");
    for (int i = 0; i < 3; i++)
        must(cudaGraphLaunch(executable, main_stream), "launch graph");
    must(cudaStreamSynchronize(main_stream), "synchronize");
    truth.add_captured(3);
}

void run_threads(Step &step)
{
    std::vector<std::thread> threads;
    long copies = step.number(1, 500);
    for (long i = 0; i < step.number(0, 4); i++)
        threads.emplace_back([i, copies] {
            cudaStream_t stream;
            size_t bytes = (i + 1) * KiB;
            must(cudaStreamCreate(&stream), "cudaStreamCreate");
            for (long j = 0; j < copies; j++)
                must(cudaMemcpyAsync(device_memory + i * MiB, pinned_memory, bytes,
                                     cudaMemcpyHostToDevice, stream),
                     "cudaMemcpyAsync");
            must(cudaStreamSynchronize(stream), "synchronize");
            truth.add("H2D", ASYNC, bytes, copies);
        });
    for (std::thread &thread : threads)
        thread.join();
}

void run_unified(Step &)
{
    for (const Route &route : routes())
        must(cudaMemcpy(route.destination, route.source, MiB, cudaMemcpyDefault), "cudaMemcpy");
    must(cudaMemcpy(pinned_memory, pageable_memory, MiB, cudaMemcpyHostToHost), "cudaMemcpy");
}

void time_copies(const Step &step, const char *memory, char *host)
{
    size_t bytes = std::min(step.number(0, 64) * MiB, BUFFER_BYTES);
    const Route timed_routes[] = {
        { "H2D", cudaMemcpyHostToDevice, device_memory, host },
        { "D2H", cudaMemcpyDeviceToHost, host, device_memory },
    };
    for (long i = 0; i < step.number(1, 32); i++)
        for (const Route &route : timed_routes) {
            double start = now_ns();
            copy(route, SYNC, bytes);
            truth.add_timed(memory, route.direction, bytes, (now_ns() - start) / 1e9);
        }
}

void run_pinned(Step &step)
{
    time_copies(step, "pinned", pinned_memory);
}

void run_pageable(Step &step)
{
    time_copies(step, "pageable", pageable_memory);
}

const StepRow step_table[] = {
    { "init", run_init, true },         { "linear", run_linear, true },
    { "async", run_async, true },       { "planes", run_planes, true },
    { "volumes", run_volumes, true },   { "sets", run_sets, true },
    { "captured", run_captured, true }, { "threads", run_threads, true },
    { "unified", run_unified, true },   { "pinned", run_pinned, true },
    { "pageable", run_pageable, true }, { "wait", nullptr, false },
};

const Program program = {
    "copy",
    prepare,
    [](const std::string &step, const std::string &extra) { truth.print(step, extra); },
};

} // namespace

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run_step(program, step_table, argv[i]);
    return 0;
}
