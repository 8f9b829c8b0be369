/*
 * A CUDA program that knows exactly what it did.
 *
 *     leak [--context create] STEP[=NUMBER[,NUMBER]] ...
 *
 * It runs the steps in order. After each it prints one JSON line with all it
 * has done so far: successful allocations and frees, failed calls, frees of
 * NULL, and every block that lives. It frees nothing at its end.
 *
 *     init            select device 0 and create its context
 *     blocks          allocate 3 x 8 MiB, free 2
 *     old[=N]         allocate N (default 5) x 1 MiB, kept for free-old
 *     free-old        free what `old` allocated
 *     failures        5 allocations and 3 frees that fail, and a free of NULL
 *     handoff[=N]     N (default 1000) x 4 KiB, freed by another thread
 *     churn[=T,N]     T (default 4) threads, each N (default 1000) pairs of
 *                     allocate and free, then 1 MiB that is kept
 *     devices         on device D of all visible ones: D + 1 MiB, kept
 *     time[=N]        N (default 2000) timed pairs, "ns_per_pair" in the line
 *     wait            print the line, then read a line from standard input
 *     kill            SIGKILL itself
 *
 * --context create (driver API only) makes contexts of its own.
 */
#include "api.h"
#include "steps.h"

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;

/* More memory than any machine has: an allocation of this size must fail. */
constexpr size_t IMPOSSIBLE_BYTES = size_t{ 1 } << 50;

thread_local int current_device; /* as set_device left it */
thread_local std::string thread_name;

[[noreturn]] void fail(const char *what, int error)
{
    fprintf(stderr, "leak: %s: CUDA error %d\n", what, error);
    exit(1);
}

long thread_id()
{
    return syscall(SYS_gettid);
}

/* ---- the truth -------------------------------------------------------- */

struct Block {
    uint64_t serial; /* number of earlier successful allocations */
    size_t bytes;
    int device;
    long tid;
    std::string thread;
};

/* The counts of one thread, where tracking single blocks would cost too much. */
struct Tally {
    uint64_t allocs = 0, frees = 0, failed = 0;
};

class Truth {
public:
    void *alloc(size_t bytes)
    {
        void *address = nullptr;
        int error = api::alloc(&address, bytes);
        std::lock_guard<std::mutex> lock(mutex_);
        if (error) {
            sum_.failed++;
            return nullptr;
        }
        blocks_[address] = { sum_.allocs++, bytes, current_device, thread_id(), thread_name };
        return address;
    }

    /* The block leaves the list before the call: once the driver has freed it,
     * another thread may be given the same address at any moment. */
    void release(void *address)
    {
        mutex_.lock();
        auto block = blocks_.extract(address);
        mutex_.unlock();
        int error = api::release(address);
        std::lock_guard<std::mutex> lock(mutex_);
        if (error) {
            sum_.failed++;
            if (block)
                blocks_.insert(std::move(block));
        } else if (address) {
            sum_.frees++;
        } else {
            null_frees_++;
        }
    }

    void add(const Tally &tally)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        sum_.allocs += tally.allocs;
        sum_.frees += tally.frees;
        sum_.failed += tally.failed;
    }

    void print(const std::string &step, const std::string &extra)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        size_t live_bytes = 0;
        for (const auto &entry : blocks_)
            live_bytes += entry.second.bytes;
        printf("{\"step\":\"%s\",\"pid\":%d,\"api\":\"%s\",\"allocs\":%llu,\"frees\":%llu,"
               "\"failed\":%llu,\"null_frees\":%llu,\"live_bytes\":%zu,\"live_blocks\":%zu%s,"
               "\"blocks\":[",
               step.c_str(), getpid(), api::name, (unsigned long long)sum_.allocs,
               (unsigned long long)sum_.frees, (unsigned long long)sum_.failed,
               (unsigned long long)null_frees_, live_bytes, blocks_.size(), extra.c_str());
        const char *separator = "";
        for (const auto &entry : blocks_) {
            const Block &block = entry.second;
            printf("%s{\"serial\":%llu,\"address\":\"%p\",\"bytes\":%zu,\"device\":%d,"
                   "\"tid\":%ld,\"thread\":\"%s\"}",
                   separator, (unsigned long long)block.serial, entry.first, block.bytes,
                   block.device, block.tid, block.thread.c_str());
            separator = ",";
        }
        puts("]}");
        fflush(stdout);
    }

private:
    std::mutex mutex_;
    std::map<void *, Block> blocks_;
    Tally sum_;
    uint64_t null_frees_ = 0;
};

Truth truth;

void churn_pairs(long pairs, size_t bytes, Tally *tally)
{
    for (long i = 0; i < pairs; i++) {
        void *address = nullptr;
        if (api::alloc(&address, bytes)) {
            tally->failed++;
            continue;
        }
        tally->allocs++;
        if (api::release(address))
            tally->failed++;
        else
            tally->frees++;
    }
}

/* ---- the steps -------------------------------------------------------- */

std::vector<void *> old_blocks;

void select_device(int ordinal)
{
    if (int error = api::set_device(ordinal))
        fail("set device", error);
    current_device = ordinal;
}

template <typename Work> std::thread start_thread(const std::string &name, Work work)
{
    return std::thread([name, work] {
        thread_name = name;
        pthread_setname_np(pthread_self(), name.c_str());
        if (int error = api::enter_thread())
            fail("enter thread", error);
        work();
    });
}

void run_init(Step &)
{
    select_device(0);
    truth.release(nullptr); /* the usual way to have the runtime make its context */
}

void run_blocks(Step &)
{
    void *blocks[3];
    for (void *&block : blocks)
        block = truth.alloc(8 * MiB);
    truth.release(blocks[0]);
    truth.release(blocks[2]);
}

void run_old(Step &step)
{
    for (long i = 0; i < step.number(0, 5); i++)
        old_blocks.push_back(truth.alloc(MiB));
}

void run_free_old(Step &)
{
    for (void *block : old_blocks)
        truth.release(block);
    old_blocks.clear();
}

void run_failures(Step &)
{
    for (int i = 0; i < 5; i++)
        truth.alloc(IMPOSSIBLE_BYTES);
    void *block = truth.alloc(MiB);
    truth.release(block);
    truth.release(block); /* freed already */
    truth.release(reinterpret_cast<void *>(uintptr_t{ 0x1000 }));
    truth.release(&block); /* host memory */
    truth.release(nullptr);
}

void run_handoff(Step &step)
{
    std::vector<void *> blocks;
    for (long i = 0; i < step.number(0, 1000); i++)
        blocks.push_back(truth.alloc(4 * KiB));
    start_thread("freer", [&blocks] {
        for (void *block : blocks)
            truth.release(block);
    }).join();
}

void run_churn(Step &step)
{
    std::vector<std::thread> threads;
    long pairs = step.number(1, 1000);
    for (long i = 0; i < step.number(0, 4); i++)
        threads.push_back(start_thread("churn-" + std::to_string(i), [i, pairs] {
            Tally tally;
            churn_pairs(pairs, (i + 1) * 512, &tally);
            truth.add(tally);
            truth.alloc(MiB);
        }));
    for (std::thread &thread : threads)
        thread.join();
}

void run_devices(Step &)
{
    int count = 0;
    if (int error = api::device_count(&count))
        fail("count devices", error);
    for (int ordinal = 0; ordinal < count; ordinal++) {
        select_device(ordinal);
        truth.alloc((ordinal + 1) * MiB);
    }
    select_device(0);
}

void run_time(Step &step)
{
    Tally tally;
    long pairs = step.number(0, 2000);
    double start = now_ns();
    churn_pairs(pairs, 2 * KiB, &tally);
    double elapsed = now_ns() - start;
    truth.add(tally);
    step.extra = ",\"ns_per_pair\":" + std::to_string(elapsed / pairs);
}

void run_kill(Step &)
{
    raise(SIGKILL);
}

const StepRow step_table[] = {
    { "init", run_init, false },        { "blocks", run_blocks, true },
    { "old", run_old, true },           { "free-old", run_free_old, true },
    { "failures", run_failures, true }, { "handoff", run_handoff, true },
    { "churn", run_churn, true },       { "devices", run_devices, false },
    { "time", run_time, true },         { "wait", nullptr, false },
    { "kill", run_kill, false },
};

/* The runtime needs no call before the first cudaMalloc, which a tracer must handle; the driver
 * needs a context first. */
void prepare_context()
{
    static bool prepared;
    if (!prepared && !strcmp(api::name, "driver"))
        select_device(0);
    prepared = true;
}

const Program program = {
    "leak",
    prepare_context,
    [](const std::string &step, const std::string &extra) { truth.print(step, extra); },
};

} // namespace

int main(int argc, char **argv)
{
    char comm[16];
    pthread_getname_np(pthread_self(), comm, sizeof comm);
    thread_name = comm;
    int first = 1;
    if (argc > 2 && !strcmp(argv[1], "--context")) {
        api::create_contexts = !strcmp(argv[2], "create");
        first = 3;
    }
    for (int i = first; i < argc; i++)
        run_step(program, step_table, argv[i]);
    return 0;
}
