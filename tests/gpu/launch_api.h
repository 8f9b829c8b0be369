/*
 * What launch.cu needs of the two CUDA APIs, behind the same few functions.
 *
 * With -DDRIVER_API the program calls the driver alone (link with -lcuda) and
 * loads the kernels from launch_kernels.cubin beside itself; otherwise they are
 * in the program and it calls the runtime alone. Any error ends the program.
 */
#ifndef GPUPROBE_TESTS_GPU_LAUNCH_API_H
#define GPUPROBE_TESTS_GPU_LAUNCH_API_H

#include "api.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <unistd.h>

struct Shape {
    unsigned x, y, z;
};

/* A kernel. `function` is NULL where a module has it. */
struct Kernel {
    const char *mangled, *name;
    Shape grid, block;
    void (*function)(unsigned *runs);
};

/* The first two are one function, which the runtime uses in two ways: for a launch with <<<>>> the
 * compiler makes a kernel handle, otherwise the program passes its host function. */
enum Way { IN_BRACKETS, BY_POINTER, CONFIGURED, COOPERATIVELY };

namespace api {

inline void must(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "launch: %s: CUDA error %d\n", what, error);
        exit(1);
    }
}

#ifdef DRIVER_API

#define KERNEL_FUNCTION(function) nullptr

using Stream = CUstream;
using Graph = CUgraphExec;

/* By Way. */
constexpr const char *function_names[] = { "cuLaunchKernel", "cuLaunchKernel", "cuLaunchKernelEx",
                                           "cuLaunchCooperativeKernel" };

/* The contents of the file NAME beside the program. */
inline std::string module_image(const std::string &name)
{
    char program[4096] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        must(-1, "readlink");
    std::string path = std::string(program);
    path = path.substr(0, path.rfind('/') + 1) + name;
    std::ifstream file(path, std::ios::binary);
    if (!file)
        must(-1, path.c_str());
    return { std::istreambuf_iterator<char>(file), {} };
}

inline std::map<const Kernel *, CUfunction> functions;

inline void find_kernels(const Kernel *kernels, size_t count)
{
    static std::string image = module_image("launch_kernels.cubin");
    CUmodule module;
    must(cuModuleLoadData(&module, image.data()), "load launch_kernels.cubin");
    for (const Kernel *kernel = kernels; kernel < kernels + count; kernel++)
        must(cuModuleGetFunction(&functions[kernel], module, kernel->mangled), kernel->mangled);
}

inline void launch(const Kernel &kernel, Way way, Stream stream, unsigned *runs,
                   CUfunction function)
{
    void *arguments[] = { &runs };
    const Shape &grid = kernel.grid, &block = kernel.block;
    CUlaunchConfig config = {};
    switch (way) {
    case IN_BRACKETS:
    case BY_POINTER:
        must(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, 0, stream,
                            arguments, nullptr),
             kernel.mangled);
        break;
    case CONFIGURED:
        config.gridDimX = grid.x, config.gridDimY = grid.y, config.gridDimZ = grid.z;
        config.blockDimX = block.x, config.blockDimY = block.y, config.blockDimZ = block.z;
        config.hStream = stream;
        must(cuLaunchKernelEx(&config, function, arguments, nullptr), kernel.mangled);
        break;
    case COOPERATIVELY:
        must(cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                       0, stream, arguments),
             kernel.mangled);
        break;
    }
}

inline void launch(const Kernel &kernel, Way way, Stream stream, unsigned *runs)
{
    launch(kernel, way, stream, runs, functions.at(&kernel));
}

inline Stream new_stream()
{
    Stream stream;
    must(cuStreamCreate(&stream, CU_STREAM_DEFAULT), "create stream");
    return stream;
}

inline void begin_capture(Stream stream)
{
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "begin capture");
}

inline Graph end_capture(Stream stream)
{
    CUgraph graph;
    Graph executable;
    must(cuStreamEndCapture(stream, &graph), "end capture");
    must(cuGraphInstantiate(&executable, graph, 0), "instantiate graph");
    return executable;
}

inline void launch_graph(Graph graph, Stream stream)
{
    must(cuGraphLaunch(graph, stream), "launch graph");
}

inline void synchronize()
{
    must(cuCtxSynchronize(), "synchronize");
}

inline void read_back(void *host, const void *device, size_t bytes)
{
    must(cuMemcpyDtoH(host, reinterpret_cast<CUdeviceptr>(device), bytes), "copy to the host");
}

inline void write_to(void *device, const void *host, size_t bytes)
{
    must(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(device), host, bytes), "copy to the device");
}

#else

#define KERNEL_FUNCTION(function) function

using Stream = cudaStream_t;
using Graph = cudaGraphExec_t;

/* By Way. */
constexpr const char *function_names[] = { "cudaLaunchKernel", "cudaLaunchKernel",
                                           "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel" };

inline void find_kernels(const Kernel *, size_t)
{
}

inline void launch(const Kernel &kernel, Way way, Stream stream, unsigned *runs)
{
    void *arguments[] = { &runs };
    const void *function = reinterpret_cast<const void *>(kernel.function);
    dim3 grid(kernel.grid.x, kernel.grid.y, kernel.grid.z);
    dim3 block(kernel.block.x, kernel.block.y, kernel.block.z);
    cudaLaunchConfig_t config = {};
    switch (way) {
    case IN_BRACKETS:
        kernel.function<<<grid, block, 0, stream>>>(runs);
        break;
    case BY_POINTER:
        must(cudaLaunchKernel(function, grid, block, arguments, 0, stream), kernel.mangled);
        break;
    case CONFIGURED:
        config.gridDim = grid;
        config.blockDim = block;
        config.stream = stream;
        must(cudaLaunchKernelExC(&config, function, arguments), kernel.mangled);
        break;
    case COOPERATIVELY:
        must(cudaLaunchCooperativeKernel(function, grid, block, arguments, 0, stream),
             kernel.mangled);
        break;
    }
}

inline Stream new_stream()
{
    Stream stream;
    must(cudaStreamCreate(&stream), "create stream");
    return stream;
}

inline void begin_capture(Stream stream)
{
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
}

inline Graph end_capture(Stream stream)
{
    cudaGraph_t graph;
    Graph executable;
    must(cudaStreamEndCapture(stream, &graph), "end capture");
    must(cudaGraphInstantiate(&executable, graph, 0), "instantiate graph");
    return executable;
}

inline void launch_graph(Graph graph, Stream stream)
{
    must(cudaGraphLaunch(graph, stream), "launch graph");
}

/* Also where the error of a <<<>>> launch shows. */
inline void synchronize()
{
    must(cudaGetLastError(), "launch");
    must(cudaDeviceSynchronize(), "synchronize");
}

inline void read_back(void *host, const void *device, size_t bytes)
{
    must(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy to the host");
}

inline void write_to(void *device, const void *host, size_t bytes)
{
    must(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
}

#endif

} // namespace api

#endif
