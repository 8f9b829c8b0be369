/*
 * A CUDA program that holds known amounts of every kind of memory.
 *
 *     kinds STEP ...
 *
 * It runs the steps in order. After each it prints one JSON line with what is
 * live, by kind, and how many calls handed memory out or gave it back. Arrays
 * have the size that their descriptors come to. It frees nothing at its end.
 *
 *     init            select device 0 and create its context
 *     plain           2 x 3 MiB; one more, freed
 *     pitched         1000 x 100 and 1000 x 10 x 10
 *     managed         1 MiB
 *     host            1 MiB page-locked in each of two ways, 1 MiB registered
 *     arrays          two- and three-dimensional, and mipmapped
 *     async           3 MiB, stream-ordered; 1 MiB more, freed
 *     pool            5 MiB from a pool of its own
 *     pool-destroy    the pool goes, the memory stays
 *     vmm             physical memory: mapped twice and retained; never mapped
 *     vmm-release     the references go, and one mapping
 *     vmm-unmap       the last mapping goes
 *     share           a handle, exported and imported again by itself
 *     share-map       the imported handle is mapped
 *     share-end       the imported handle goes
 *     statics         asks for two variables, and copies to one
 *     managed-static  asks for a managed variable (runtime API only)
 *     unload          unloads the module of the variables (driver API only)
 *     graph           a graph that allocates 2 MiB is made and instantiated
 *     graph-launch    it is launched
 *     graph-again     it is launched while its memory is live, which fails
 *     graph-destroy   graph and executable go
 *     captured        an allocation of 4 MiB is captured, and launched
 *     context         a context of its own, with memory of most kinds in it
 *     context-destroy that context goes
 *     reset           the device's primary context is reset
 *     facts           each kind's free after a reset, one by one: what they return
 *     ipc             another process opens 4 MiB twice
 *     ipc-close       it closes it once
 *     ipc-reset       it resets the device, and closes it once more
 *     free            everything that can be freed
 *     time-async[=N]  N (default 2000) timed pairs of stream-ordered allocate and
 *                     free, "ns_per_pair" in the line
 *     time-graph[=N]  N (default 2000) timed launches of a graph that allocates
 *                     and frees, "ns_per_launch" in the line
 *     grow=N          N x 2 MiB of plain memory
 *     wait            print the line, then read a line from standard input
 */
#include "kinds_api.h"
#include "kinds_ipc.h"
#include "kinds_truth.h"
#include "kinds_vmm.h"
#include "steps.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#ifdef DRIVER_API
#include <climits>
#else
__device__ char gp_table[1 << 20];
__constant__ char gp_limits[4096];
__managed__ char gp_shared[8192];
#endif

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;

Truth truth;
Virtual virtual_memory;
OwnContext own_context;
Opener opener;
bool was_reset; /* frees of stream-ordered memory then go through the driver */

api::Stream stream()
{
    static api::Stream made;
    static bool is_made;
    if (!is_made)
        must("create a stream", api::create_stream(&made));
    is_made = true;
    return made;
}

/* Allocates by one function and records how to free it. */
template <typename Allocate, typename Release>
uint64_t hold(const char *kind, size_t bytes, bool at_gpu, Allocate allocate, Release release)
{
    void *address = nullptr;
    must(kind, allocate(&address));
    return truth.hold(kind, bytes, [address, release] { return release(address); }, at_gpu);
}

int release_async(void *address)
{
    if (was_reset)
        return cuMemFree(api::device_pointer(address));
    return api::free_async(address, stream());
}

uint64_t hold_plain(size_t bytes)
{
    return hold("device", bytes, true, [bytes](void **a) { return api::alloc(a, bytes); },
                api::release);
}

void run_init(Step &)
{
    int gpus = 0;
    must("start", api::start());
    must("count devices", api::device_count(&gpus));
    truth.facts["gpus"] = gpus;
}

void run_plain(Step &)
{
    hold_plain(3 * MiB);
    uint64_t freed = hold_plain(3 * MiB);
    hold_plain(3 * MiB);
    must("free", truth.give_back(freed));
}

void run_pitched(Step &)
{
    void *address = nullptr;
    size_t pitch = 0;
    must("pitched", api::alloc_pitched(&address, &pitch, 1000, 100));
    truth.hold("pitched", pitch * 100, [address] { return api::release(address); });
    must("volume", api::alloc_volume(&address, &pitch, 1000, 10, 10));
    truth.hold("pitched", pitch * 10 * 10, [address] { return api::release(address); });
}

void run_managed(Step &)
{
    hold("managed", MiB, true, [](void **a) { return api::alloc_managed(a, MiB); }, api::release);
}

void run_host(Step &)
{
    hold("pinned", MiB, false, [](void **a) { return api::alloc_host(a, MiB); }, api::free_host);
    hold("pinned", MiB, false, [](void **a) { return api::alloc_host_flags(a, MiB); },
         api::free_host);
    auto register_new = [](void **address) {
        return posix_memalign(address, 4 * KiB, MiB) ? -1 : api::register_host(*address, MiB);
    };
    hold("registered", MiB, false, register_new, api::unregister_host);
}

void run_arrays(Step &)
{
    api::Array array;
    api::Mipmapped mipmapped;
    must("array", api::create_array(&array, 64, 64));
    truth.hold("array", 64 * 64 * 4, [array] { return api::destroy_array(array); });
    must("volume", api::create_volume(&array, 32, 16, 8));
    truth.hold("array", 32 * 16 * 8 * 16, [array] { return api::destroy_array(array); });
    must("mipmapped", api::create_mipmapped(&mipmapped, 64, 64, 3));
    truth.hold("array", (64 * 64 + 32 * 32 + 16 * 16) * 4,
               [mipmapped] { return api::destroy_mipmapped(mipmapped); });
}

uint64_t hold_async(size_t bytes)
{
    return hold("async", bytes, true,
                [bytes](void **a) { return api::alloc_async(a, bytes, stream()); }, release_async);
}

void run_async(Step &)
{
    hold_async(3 * MiB);
    must("free", truth.give_back(hold_async(MiB)));
    must("synchronize", api::synchronize(stream()));
}

api::Pool pool;

void run_pool(Step &step)
{
    must("create a pool", api::create_pool(&pool));
    hold("async", 5 * MiB, true,
         [](void **a) { return api::alloc_from_pool(a, 5 * MiB, pool, stream()); },
         release_async);
    must("synchronize", api::synchronize(stream()));
    uint64_t reserved = 0;
    must("reserved", api::pool_reserved(pool, &reserved));
    char text[128];
    snprintf(text, sizeof text, ",\"pool\":{\"pool\":\"%p\",\"used_bytes\":%zu,\"reserved_bytes\":%zu}",
             static_cast<void *>(pool), 5 * MiB, static_cast<size_t>(reserved));
    step.extra = text;
}

void run_pool_destroy(Step &)
{
    must("destroy the pool", api::destroy_pool(pool));
}

#ifdef DRIVER_API

CUmodule module;

/* The module lies beside the program. */
void run_statics(Step &)
{
    char path[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, "kinds_module.cubin");
    must("cuModuleLoad", cuModuleLoad(&module, path));
    for (const char *name : { "gp_table", "gp_limits" }) {
        CUdeviceptr address;
        size_t bytes;
        must("cuModuleGetGlobal", cuModuleGetGlobal(&address, &bytes, module, name));
        truth.variables[name] = bytes;
    }
}

void run_unload(Step &)
{
    must("cuModuleUnload", cuModuleUnload(module));
    truth.variables.clear();
}

void run_managed_static(Step &) {}

#else

void run_statics(Step &)
{
    void *address;
    char limits[sizeof gp_limits] = {};
    must("cudaGetSymbolAddress", cudaGetSymbolAddress(&address, gp_table));
    must("cudaMemcpyToSymbol", cudaMemcpyToSymbol(gp_limits, limits, sizeof limits));
    truth.variables["gp_table"] = sizeof gp_table;
    truth.variables["gp_limits"] = sizeof gp_limits;
}

void run_managed_static(Step &)
{
    void *address;
    must("cudaGetSymbolAddress", cudaGetSymbolAddress(&address, gp_shared));
    truth.variables["gp_shared"] = sizeof gp_shared;
}

void run_unload(Step &) {}

#endif

api::Graph graph;
api::Executable executable;
void *graph_address;

void run_graph(Step &)
{
    must("graph", api::create_graph(&graph));
    must("node", api::add_alloc_node(graph, 2 * MiB, &graph_address));
    must("instantiate", api::instantiate(&executable, graph));
}

void launch(size_t bytes)
{
    must("launch", api::launch_graph(executable, stream()));
    must("synchronize", api::synchronize(stream()));
    void *address = graph_address;
    truth.appear("graph", bytes, [address] { return api::release(address); });
}

void run_graph_launch(Step &)
{
    launch(2 * MiB);
}

/* It is no memory call, and not counted among the failed ones. */
void run_graph_again(Step &)
{
    truth.facts["launch while live"] = api::launch_graph(executable, stream());
}

void run_graph_destroy(Step &)
{
    must("destroy the graph", api::destroy_graph(graph, executable));
}

void run_captured(Step &)
{
    must("begin capture", api::begin_capture(stream()));
    must("allocate", api::alloc_async(&graph_address, 4 * MiB, stream()));
    must("end capture", api::end_capture(stream(), &graph));
    must("instantiate", api::instantiate(&executable, graph));
    launch(4 * MiB);
    must("destroy the graph", api::destroy_graph(graph, executable));
}

/* All allocations in other contexts must have been freed by then. */
void run_reset(Step &)
{
    must("reset", api::reset());
    was_reset = true;
    truth.context_ended(0, truth.born());
    truth.variables.clear();
}

/* Results of frees of memory that the reset has freed, and of memory that survived. The handle of a
 * freed array must not be touched. */
void run_facts(Step &step)
{
    std::vector<std::pair<std::string, std::function<int()>>> frees;
    for (uint64_t serial : truth.serials()) {
        const Item &item = truth.item(serial);
        if (strcmp(item.kind, "array"))
            frees.push_back({ item.kind, item.give_back });
    }
    run_reset(step);
    for (const auto &entry : frees) {
        long error = entry.second();
        error ? truth.failed++ : truth.frees++;
        truth.facts["free of " + entry.first + " after reset"] = error;
    }
}

void run_ipc(Step &)
{
    api::Ipc ipc;
    void *address = nullptr;
    must("ipc", api::alloc(&address, 4 * MiB));
    truth.hold("device", 4 * MiB, [address] { return api::release(address); });
    must("export", api::export_ipc(&ipc, address));
    pid_t pid = 0;
    size_t bytes = 0;
    memcpy(&pid, ipc.bytes + 8, sizeof pid);
    memcpy(&bytes, ipc.bytes + 16, sizeof bytes);
    truth.facts["pid in the ipc handle is ours"] = pid == getpid();
    truth.facts["bytes in the ipc handle"] = bytes;
    opener.tell('o', &ipc);
}

void run_free(Step &)
{
    for (uint64_t serial : truth.serials()) {
        const char *kind = truth.item(serial).kind;
        must(kind, truth.give_back(serial));
    }
    if (!was_reset)
        must("synchronize", api::synchronize(stream()));
}

void run_time_async(Step &step)
{
    long pairs = step.number(0, 2000);
    double start = now_ns();
    for (long i = 0; i < pairs; i++) {
        void *address = nullptr;
        must("allocate", api::alloc_async(&address, 64 * KiB, stream()));
        must("free", api::free_async(address, stream()));
    }
    must("synchronize", api::synchronize(stream()));
    step.extra = ",\"ns_per_pair\":" + std::to_string((now_ns() - start) / pairs);
    truth.allocs += pairs;
    truth.frees += pairs;
}

/* The graph frees its allocations, so it can be launched repeatedly. */
void run_time_graph(Step &step)
{
    static api::Executable timed;
    static bool is_made;
    if (!is_made) {
        api::Graph made;
        void *address;
        must("begin capture", api::begin_capture(stream()));
        must("allocate", api::alloc_async(&address, 64 * KiB, stream()));
        must("free", api::free_async(address, stream()));
        must("end capture", api::end_capture(stream(), &made));
        must("instantiate", api::instantiate(&timed, made));
        is_made = true;
    }
    long launches = step.number(0, 2000);
    double start = now_ns();
    for (long i = 0; i < launches; i++)
        must("launch", api::launch_graph(timed, stream()));
    must("synchronize", api::synchronize(stream()));
    step.extra = ",\"ns_per_launch\":" + std::to_string((now_ns() - start) / launches);
}

void run_grow(Step &step)
{
    for (long i = 0; i < step.number(0, 1); i++)
        hold_plain(2 * MiB);
}

const StepRow step_table[] = {
    { "init", run_init, false },
    { "plain", run_plain, false },
    { "pitched", run_pitched, false },
    { "managed", run_managed, false },
    { "host", run_host, false },
    { "arrays", run_arrays, false },
    { "async", run_async, false },
    { "pool", run_pool, false },
    { "pool-destroy", run_pool_destroy, false },
    { "vmm", [](Step &) { virtual_memory.map(truth); }, false },
    { "vmm-release", [](Step &) { virtual_memory.release(truth); }, false },
    { "vmm-unmap", [](Step &) { virtual_memory.unmap(truth); }, false },
    { "share", [](Step &) { virtual_memory.share(truth); }, false },
    { "share-map", [](Step &) { virtual_memory.share_map(truth); }, false },
    { "share-end", [](Step &) { virtual_memory.share_end(truth); }, false },
    { "statics", run_statics, false },
    { "managed-static", run_managed_static, false },
    { "unload", run_unload, false },
    { "graph", run_graph, false },
    { "graph-launch", run_graph_launch, false },
    { "graph-again", run_graph_again, false },
    { "graph-destroy", run_graph_destroy, false },
    { "captured", run_captured, false },
    { "context", [](Step &) { own_context.fill(truth); }, false },
    { "context-destroy", [](Step &) { own_context.destroy(truth); }, false },
    { "reset", run_reset, false },
    { "facts", run_facts, false },
    { "ipc", run_ipc, false },
    { "ipc-close", [](Step &) { opener.tell('c'); }, false },
    { "ipc-reset", [](Step &) { opener.tell('r'); }, false },
    { "free", run_free, false },
    { "time-async", run_time_async, false },
    { "time-graph", run_time_graph, false },
    { "grow", run_grow, false },
    { "wait", nullptr, false },
};

const Program program = {
    "kinds",
    [] {},
    [](const std::string &step, const std::string &extra) {
        truth.print(api::name, step, extra);
    },
};

} // namespace

int main(int argc, char **argv)
{
    for (int i = 1; i < argc && !opener.is_there(); i++)
        if (!strncmp(argv[i], "ipc", 3))
            opener.fork_now(truth);
    for (int i = 1; i < argc; i++)
        run_step(program, step_table, argv[i]);
    return 0;
}
