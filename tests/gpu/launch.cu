/*
 * A CUDA program that knows exactly which kernels it launched.
 *
 *     launch STEP[=NUMBER[,NUMBER]] ...
 *
 * It runs the steps in order. After each it prints one JSON line with all it
 * has done so far: launches of each kernel, those that went into a graph and
 * those that a graph made, launches of graphs, and what the GPU counted.
 *
 *     init            create the context and the counters
 *     each[=N]        N (default 1000) plain launches of each of 4 kernels
 *     configured[=N]  N (default 200) launches with a configuration
 *     cooperative[=N] N (default 100) cooperative launches
 *     threads[=T,N]   T (default 4) threads, each N (default 1000) launches of
 *                     one kernel on a stream of its own
 *     capture         capture 5 launches into a new graph, instantiate it
 *     graph[=N]       launch that graph N (default 23) times
 *     reload[=N]      N (default 5) times: load a module, launch its kernel,
 *                     unload it, and the same with another module and with two
 *                     libraries (driver API only)
 *     time[=N]        N (default 20000) timed launches of an empty kernel,
 *                     "ns_per_launch" in the line
 *     wait            print the line, then read a line from standard input
 */
#include "launch_api.h"
#include "steps.h"

#ifndef DRIVER_API
#include "launch_kernels.cuh"
#endif

#include <atomic>
#include <thread>
#include <vector>

namespace {

enum Name { PLAIN, TICK, SCALE_FLOAT, SCALE_DOUBLE, THREADED, SHAPED, TOGETHER, EMPTY };

/* Every kernel is launched in one shape. */
const Kernel kernels[] = {
    { "plain", "plain", { 1, 1, 1 }, { 32, 1, 1 }, KERNEL_FUNCTION(plain) },
    { "_ZN4work4tickEPj",
      "work::tick(unsigned int*)",
      { 3, 2, 1 },
      { 64, 1, 1 },
      KERNEL_FUNCTION(work::tick) },
    { "_ZN4work5scaleIfEEvPj",
      "void work::scale<float>(unsigned int*)",
      { 4, 1, 2 },
      { 8, 4, 2 },
      KERNEL_FUNCTION(work::scale<float>) },
    { "_ZN4work5scaleIdEEvPj",
      "void work::scale<double>(unsigned int*)",
      { 70, 3, 5 },
      { 16, 2, 1 },
      KERNEL_FUNCTION(work::scale<double>) },
    { "_ZN4work8threadedEPj",
      "work::threaded(unsigned int*)",
      { 2, 1, 1 },
      { 96, 1, 1 },
      KERNEL_FUNCTION(work::threaded) },
    { "_ZN4work6shapedEPj",
      "work::shaped(unsigned int*)",
      { 5, 4, 3 },
      { 4, 8, 16 },
      KERNEL_FUNCTION(work::shaped) },
    { "_ZN4work8togetherEPj",
      "work::together(unsigned int*)",
      { 2, 2, 1 },
      { 128, 1, 2 },
      KERNEL_FUNCTION(work::together) },
    { "_ZN4work5emptyEPj",
      "work::empty(unsigned int*)",
      { 1, 1, 1 },
      { 32, 1, 1 },
      KERNEL_FUNCTION(work::empty) },
};

/* In modules and libraries of their own: each is the only kernel of its image. */
const Kernel loaded_kernels[] = {
    { "alpha", "alpha", { 1, 2, 1 }, { 32, 2, 1 }, nullptr },
    { "beta", "beta", { 2, 1, 3 }, { 32, 1, 3 }, nullptr },
};

constexpr size_t LINKED_COUNT = sizeof kernels / sizeof kernels[0];
constexpr size_t LOADED_COUNT = sizeof loaded_kernels / sizeof loaded_kernels[0];
constexpr size_t KERNEL_COUNT = LINKED_COUNT + LOADED_COUNT;

const Kernel &kernel_at(size_t index)
{
    return index < LINKED_COUNT ? kernels[index] : loaded_kernels[index - LINKED_COUNT];
}

/* ---- the truth -------------------------------------------------------- */

struct Tally {
    std::atomic<uint64_t> launches, captured, graph_runs;
    Way way = IN_BRACKETS;
};

Tally tallies[KERNEL_COUNT];
uint64_t graph_launches, graphs_launched, reused_handles, copies;
std::vector<size_t> captured_kernels;
bool graph_is_new;

unsigned *counters; /* on the GPU, one for each kernel */
api::Stream main_stream;
api::Graph graph;

void launch(size_t index, Way way, api::Stream stream)
{
    api::launch(kernels[index], way, stream, counters + index);
    tallies[index].way = way;
    tallies[index].launches++;
}

void print(const std::string &step, const std::string &extra)
{
    unsigned ran[KERNEL_COUNT] = {};
    if (counters) {
        api::synchronize();
        api::read_back(ran, counters, sizeof ran);
        copies++;
    }
    printf("{\"step\":\"%s\",\"pid\":%d,\"api\":\"%s\",\"graph_launches\":%llu,\"graphs\":%llu,"
           "\"reused_handles\":%llu,\"copies\":%llu%s,\"kernels\":[",
           step.c_str(), getpid(), api::name, (unsigned long long)graph_launches,
           (unsigned long long)graphs_launched, (unsigned long long)reused_handles,
           (unsigned long long)copies, extra.c_str());
    for (size_t i = 0; i < KERNEL_COUNT; i++) {
        const Kernel &kernel = kernel_at(i);
        const Tally &tally = tallies[i];
        std::string counted = i == EMPTY ? "null" : std::to_string(ran[i]);
        printf("%s{\"mangled\":\"%s\",\"name\":\"%s\",\"function\":\"%s\",\"launches\":%llu,"
               "\"captured\":%llu,\"graph_runs\":%llu,\"ran\":%s,\"grid\":[%u,%u,%u],"
               "\"block\":[%u,%u,%u]}",
               i ? "," : "", kernel.mangled, kernel.name, api::function_names[tally.way],
               (unsigned long long)tally.launches, (unsigned long long)tally.captured,
               (unsigned long long)tally.graph_runs, counted.c_str(), kernel.grid.x, kernel.grid.y,
               kernel.grid.z, kernel.block.x, kernel.block.y, kernel.block.z);
    }
    puts("]}");
    fflush(stdout);
}

/* ---- the steps -------------------------------------------------------- */

void prepare_context()
{
    if (counters)
        return;
    const unsigned zeros[KERNEL_COUNT] = {};
    void *memory = nullptr;
    api::must(api::set_device(0), "set device");
    api::must(api::alloc(&memory, sizeof zeros), "allocate");
    counters = static_cast<unsigned *>(memory);
    api::write_to(counters, zeros, sizeof zeros);
    copies++;
    api::find_kernels(kernels, LINKED_COUNT);
    main_stream = api::new_stream();
}

void run_init(Step &)
{
}

void run_each(Step &step)
{
    for (long i = 0; i < step.number(0, 1000); i++)
        for (size_t kernel : { PLAIN, TICK, SCALE_FLOAT, SCALE_DOUBLE })
            launch(kernel, i % 2 ? BY_POINTER : IN_BRACKETS, main_stream);
}

void run_configured(Step &step)
{
    for (long i = 0; i < step.number(0, 200); i++)
        launch(SHAPED, CONFIGURED, main_stream);
}

void run_cooperative(Step &step)
{
    for (long i = 0; i < step.number(0, 100); i++)
        launch(TOGETHER, COOPERATIVELY, main_stream);
}

void run_threads(Step &step)
{
    std::vector<std::thread> threads;
    long launches = step.number(1, 1000);
    for (long i = 0; i < step.number(0, 4); i++)
        threads.emplace_back([launches] {
            api::must(api::enter_thread(), "enter thread");
            api::Stream stream = api::new_stream();
            for (long j = 0; j < launches; j++)
                launch(THREADED, IN_BRACKETS, stream);
        });
    for (std::thread &thread : threads)
        thread.join();
}

/* The kernels of the graph are launched outside of graphs as well. */
void run_capture(Step &)
{
    captured_kernels = { TICK, SCALE_FLOAT, TICK, SCALE_DOUBLE, PLAIN };
    api::begin_capture(main_stream);
    for (size_t index : captured_kernels) {
        api::launch(kernels[index], IN_BRACKETS, main_stream, counters + index);
        tallies[index].captured++;
    }
    graph = api::end_capture(main_stream);
    graph_is_new = true;
}

void run_graph(Step &step)
{
    for (long i = 0; i < step.number(0, 23); i++) {
        api::launch_graph(graph, main_stream);
        graph_launches++;
        for (size_t index : captured_kernels)
            tallies[index].graph_runs++;
    }
    graphs_launched += graph_is_new;
    graph_is_new = false;
}

#ifdef DRIVER_API

/* A handle may be reused for another kernel once its module is unloaded. */
void note_handle(const void *handle, size_t index)
{
    static std::map<const void *, size_t> last_kernel;
    auto known = last_kernel.find(handle);
    reused_handles += known != last_kernel.end() && known->second != index;
    last_kernel[handle] = index;
}

void launch_loaded(size_t index, CUfunction function)
{
    size_t place = LINKED_COUNT + index;
    note_handle(function, index);
    for (int i = 0; i < 10; i++)
        api::launch(loaded_kernels[index], IN_BRACKETS, main_stream, counters + place, function);
    tallies[place].launches += 10;
    api::synchronize();
}

void run_reload(Step &step)
{
    static const std::string images[] = { api::module_image("launch_alpha.cubin"),
                                          api::module_image("launch_beta.cubin") };
    for (long i = 0; i < step.number(0, 5); i++) {
        for (size_t index = 0; index < LOADED_COUNT; index++) {
            CUmodule module;
            CUfunction function;
            api::must(cuModuleLoadData(&module, images[index].data()), "load module");
            api::must(cuModuleGetFunction(&function, module, loaded_kernels[index].mangled),
                      "get function");
            launch_loaded(index, function);
            api::must(cuModuleUnload(module), "unload module");
        }
        for (size_t index = 0; index < LOADED_COUNT; index++) {
            CUlibrary library;
            CUkernel kernel;
            api::must(cuLibraryLoadData(&library, images[index].data(), nullptr, nullptr, 0,
                                        nullptr, nullptr, 0),
                      "load library");
            api::must(cuLibraryGetKernel(&kernel, library, loaded_kernels[index].mangled),
                      "get kernel");
            /* A launch takes the handle of either kind. */
            launch_loaded(index, reinterpret_cast<CUfunction>(kernel));
            api::must(cuLibraryUnload(library), "unload library");
        }
    }
}

#else

void run_reload(Step &)
{
    fprintf(stderr, "launch: reload needs the driver API\n");
    exit(2);
}

#endif

/* The launch queue is bounded: in a long run each launch waits for one to finish. */
void run_time(Step &step)
{
    long launches = step.number(0, 20000);
    api::synchronize();
    double start = now_ns();
    for (long i = 0; i < launches; i++)
        api::launch(kernels[EMPTY], IN_BRACKETS, main_stream, nullptr);
    api::synchronize();
    double elapsed = now_ns() - start;
    tallies[EMPTY].launches += launches;
    step.extra = ",\"ns_per_launch\":" + std::to_string(elapsed / launches);
}

const StepRow step_table[] = {
    { "init", run_init, true },
    { "each", run_each, true },
    { "configured", run_configured, true },
    { "cooperative", run_cooperative, true },
    { "threads", run_threads, true },
    { "capture", run_capture, true },
    { "graph", run_graph, true },
    { "reload", run_reload, true },
    { "time", run_time, true },
    { "wait", nullptr, false },
};

const Program program = { "launch", prepare_context, print };

} // namespace

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run_step(program, step_table, argv[i]);
    return 0;
}
