/*
 * A CUDA program with kernels that nvcc compiled, launched by <<<>>>, which knows how often each
 * ran: the GPU itself counts. Other ways to launch are the workload's, of tests/standin.
 *
 *     launch STEP[=NUMBER] ...
 *
 * It runs the steps in order. After each it prints one JSON line with all it has done so far.
 *
 *     init            create the context and the counters
 *     each[=N]        N (default 1000) launches of each of 4 kernels, by <<<>>> and by pointer
 *     capture         capture 5 launches into a graph, instantiate it
 *     graph[=N]       launch that graph N (default 23) times
 *     wait            print the line, then read a line from standard input
 */
#include "steps.h"

#include <cuda_runtime.h>

#include <unistd.h>

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

namespace work
{

__global__ void tick(unsigned *runs)
{
    count(runs);
}

template <typename T> __global__ void scale(unsigned *runs)
{
    count(runs);
}

} // namespace work

namespace
{

/* Every kernel is launched in one shape. */
struct Kernel {
    const char *mangled, *name;
    dim3 grid, block;
    void (*function)(unsigned *runs);
    unsigned long long launches, captured, graph_runs;
};

enum { PLAIN, TICK, SCALE_FLOAT, SCALE_DOUBLE, KERNELS };

Kernel kernels[KERNELS] = {
    { "plain", "plain", { 1, 1, 1 }, { 32, 1, 1 }, plain },
    { "_ZN4work4tickEPj", "work::tick(unsigned int*)", { 3, 2, 1 }, { 64, 1, 1 }, work::tick },
    { "_ZN4work5scaleIfEEvPj",
      "void work::scale<float>(unsigned int*)",
      { 4, 1, 2 },
      { 8, 4, 2 },
      work::scale<float> },
    { "_ZN4work5scaleIdEEvPj",
      "void work::scale<double>(unsigned int*)",
      { 70, 3, 5 },
      { 16, 2, 1 },
      work::scale<double> },
};

unsigned *counters; /* on the GPU, one for each kernel */
unsigned long long graph_launches;
cudaStream_t stream;
cudaGraphExec_t executable;

void must(cudaError_t error, const char *what)
{
    if (error) {
        fprintf(stderr, "launch: %s: CUDA error %d\n", what, error);
        exit(1);
    }
}

void print(const std::string &step, const std::string &extra)
{
    unsigned ran[KERNELS];
    must(cudaGetLastError(), "launch");
    must(cudaDeviceSynchronize(), "synchronize");
    must(cudaMemcpy(ran, counters, sizeof ran, cudaMemcpyDeviceToHost), "copy to the host");
    printf("{\"step\":\"%s\",\"pid\":%d,\"graph_launches\":%llu,\"graphs\":%d%s,\"kernels\":[",
           step.c_str(), getpid(), graph_launches, graph_launches > 0, extra.c_str());
    for (int i = 0; i < KERNELS; i++) {
        const Kernel &kernel = kernels[i];
        printf("%s{\"mangled\":\"%s\",\"name\":\"%s\",\"function\":\"cudaLaunchKernel\","
               "\"launches\":%llu,\"captured\":%llu,\"graph_runs\":%llu,\"ran\":%u,"
               "\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u]}",
               i ? "," : "", kernel.mangled, kernel.name, kernel.launches, kernel.captured,
               kernel.graph_runs, ran[i], kernel.grid.x, kernel.grid.y, kernel.grid.z,
               kernel.block.x, kernel.block.y, kernel.block.z);
    }
    puts("]}");
    fflush(stdout);
}

void prepare()
{
    if (counters)
        return;
    must(cudaMalloc(&counters, KERNELS * sizeof *counters), "allocate");
    must(cudaMemset(counters, 0, KERNELS * sizeof *counters), "set");
    must(cudaStreamCreate(&stream), "create stream");
}

void launch(int index)
{
    const Kernel &kernel = kernels[index];
    kernel.function<<<kernel.grid, kernel.block, 0, stream>>>(counters + index);
}

/* For a launch with <<<>>> the compiler makes a kernel handle; otherwise the program passes its
 * host function. */
void run_each(Step &step)
{
    for (long i = 0; i < step.number(0, 1000); i++)
        for (int index : { PLAIN, TICK, SCALE_FLOAT, SCALE_DOUBLE }) {
            Kernel &kernel = kernels[index];
            unsigned *runs = counters + index;
            void *arguments[] = { &runs };
            kernel.launches++;
            if (i % 2)
                must(cudaLaunchKernel(reinterpret_cast<const void *>(kernel.function), kernel.grid,
                                      kernel.block, arguments, 0, stream),
                     kernel.mangled);
            else
                launch(index);
        }
}

constexpr int captured_kernels[] = { TICK, SCALE_FLOAT, TICK, SCALE_DOUBLE, PLAIN };

void run_capture(Step &)
{
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
    for (int index : captured_kernels) {
        launch(index);
        kernels[index].captured++;
    }
    cudaGraph_t graph;
    must(cudaStreamEndCapture(stream, &graph), "end capture");
    must(cudaGraphInstantiate(&executable, graph, 0), "instantiate graph");
}

void run_graph(Step &step)
{
    for (long i = 0; i < step.number(0, 23); i++) {
        must(cudaGraphLaunch(executable, stream), "launch graph");
        graph_launches++;
        for (int index : captured_kernels)
            kernels[index].graph_runs++;
    }
}

const StepRow step_table[] = {
    { "init", [](Step &) {}, true }, { "each", run_each, true }, { "capture", run_capture, true },
    { "graph", run_graph, true },    { "wait", nullptr, true },
};

const Program program = { "launch", prepare, print };

} // namespace

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run_step(program, step_table, argv[i]);
    return 0;
}
