/*
 * The workload with commands for blocks of PyTorch's allocator, "tensors", which have names here;
 * `tsnapshot` replies with the whole truth. With LD_LIBRARY_PATH set to one of the folders c10_*
 * the hooks are those of that version of PyTorch.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bfc.h"
#include "cudart_abi.h"
#include "tensorflow.h"
#include "torch.h"
#include "workload.h"

/* All named tensors, the oldest first. */
static struct tensor {
    const char *name;
    void *address;
} * tensors;
static size_t tensor_count;

static void keep(const char *name, void *address)
{
    if (tensor_count % 4096 == 0)
        tensors = realloc(tensors, (tensor_count + 4096) * sizeof *tensors);
    tensors[tensor_count++] = (struct tensor){ name, address };
}

/* Replies with the first one's address. Inlined, so that the caller is the one seen on the stack.
 */
static inline __attribute__((always_inline)) bool make_tensors(const char *name, uint64_t count,
                                                               size_t bytes, uint64_t stream,
                                                               bool is_raw, struct reply *reply)
{
    name = strdup(name);
    for (uint64_t i = 0; i < count; i++) {
        void *address =
            is_raw ? gp_torch_raw_malloc(bytes, stream) : gp_torch_malloc(bytes, stream);
        if (!address) {
            reply_add(reply, "out of memory");
            return false;
        }
        if (i == 0)
            reply_add(reply, "%p", address);
        keep(name, address);
    }
    return true;
}

CALL_SITE static bool run_tmalloc(const struct args *args, struct reply *reply)
{
    return make_tensors(args->text[0], args->number[2], args->number[1], args->number[3],
                        args->number[4], reply);
}

#define LEAK_SITE(name)                                                                \
    CALL_SITE static bool leak_##name(const struct args *args, struct reply *reply)    \
    {                                                                                  \
        return make_tensors(#name, args->number[1], args->number[2], 0, false, reply); \
    }

LEAK_SITE(forward)
LEAK_SITE(backward)
LEAK_SITE(optimizer)
LEAK_SITE(loader)

static bool run_tleak(const struct args *args, struct reply *reply)
{
    const char *name = args->text[0];
    return !strcmp(name, "forward")    ? leak_forward(args, reply)
           : !strcmp(name, "backward") ? leak_backward(args, reply)
           : !strcmp(name, "loader")   ? leak_loader(args, reply)
                                       : leak_optimizer(args, reply);
}

/* Frees the oldest of this name. */
CALL_SITE static bool run_tfree(const struct args *args, struct reply *reply)
{
    (void)reply;
    uint64_t count = args->text[1] ? args->number[1] : UINT64_MAX;
    size_t kept = 0;
    for (size_t i = 0; i < tensor_count; i++) {
        if (strcmp(tensors[i].name, args->text[0]) || !count)
            tensors[kept++] = tensors[i];
        else if (count--, gp_torch_free(tensors[i].address))
            return false;
    }
    tensor_count = kept;
    return true;
}

static bool run_tempty(const struct args *args, struct reply *reply)
{
    (void)args, (void)reply;
    gp_torch_empty_cache();
    return true;
}

/* Other streams use all of this name. */
static bool run_trecord(const struct args *args, struct reply *reply)
{
    (void)reply;
    for (size_t i = 0; i < tensor_count; i++)
        if (!strcmp(tensors[i].name, args->text[0]))
            gp_torch_record_stream(tensors[i].address);
    return true;
}

static bool run_tsync(const struct args *args, struct reply *reply)
{
    (void)args, (void)reply;
    gp_torch_synchronize();
    return true;
}

static bool run_tsnapshot(const struct args *args, struct reply *reply)
{
    (void)args;
    reply->more = gp_torch_snapshot();
    return true;
}

/* ---- many calls ------------------------------------------------------------ */

/* The threads have the devices in turn. */
static void enter_device(const struct member *member)
{
    int devices = 1;
    api.device_count(&devices);
    api.set_device((int)(member->number % (uint64_t)devices));
}

/* The thread that takes an address from its slot frees it: mostly another one's tensor. */
static _Atomic(void *) churn_slots[512];

/* Random sizes from 1 byte to 64 MiB: each power of two is as likely. */
CALL_SITE static void churn_tensors(struct member *member)
{
    /* Not 0, a fixed point. */
    uint64_t state = (*(uint64_t *)member->shared + member->number) * 0x9e3779b97f4a7c15u | 1;
    enter_device(member);
    for (uint64_t i = 0; i < member->count; i++) {
        void *made = NULL;
        uint64_t choice = next_random(&state), most = (uint64_t)1 << next_random(&state) % 27;
        if (choice % 4)
            made = gp_torch_malloc(most / 2 + next_random(&state) % most + 1, choice / 4 % 3);
        gp_torch_free(atomic_exchange(&churn_slots[choice / 64 % 512], made));
    }
}

/* The remaining tensors are called "churn". */
static bool run_tchurn(const struct args *args, struct reply *reply)
{
    (void)reply;
    uint64_t seed = args->number[2];
    run_crew(args->number[0],
             (struct member){ .body = churn_tensors, .count = args->number[1], .shared = &seed });
    for (size_t i = 0; i < 512; i++) {
        void *address = atomic_exchange(&churn_slots[i], NULL);
        if (address)
            keep("churn", address);
    }
    return true;
}

CALL_SITE static void flood_tensors(struct member *member)
{
    enter_device(member);
    for (uint64_t i = 0; i < member->count; i++)
        gp_torch_free(gp_torch_malloc(member->bytes, 0));
}

static bool run_tflood(const struct args *args, struct reply *reply)
{
    (void)reply;
    run_crew(args->number[0], (struct member){ .body = flood_tensors,
                                               .count = args->number[1],
                                               .bytes = args->number[2] });
    return true;
}

/* RATE counts mallocs and frees. */
static bool run_trate(const struct args *args, struct reply *reply)
{
    double rate = (double)args->number[0], seconds = strtod(args->text[1], NULL);
    struct member batch = { .count = (uint64_t)(rate / 2000) + 1, .bytes = args->number[2] };
    uint64_t start = now_ns(), pairs = 0;
    for (; (double)pairs < rate * seconds / 2; pairs += batch.count) {
        sleep_until_ns(start + (uint64_t)((double)pairs * 2e9 / rate));
        flood_tensors(&batch);
    }
    reply_add(reply, "mallocs=%lu frees=%lu seconds=%.3f", pairs, pairs,
              (double)(now_ns() - start) / 1e9);
    return true;
}

/* ---- TensorFlow's allocator: a region from CUDA, and chunks of it ----------- */

static bool run_tregion(const struct args *args, struct reply *reply)
{
    void *address = NULL;
    int error = cudaMalloc(&address, args->number[0]);
    bfc_add_region((uintptr_t)address, args->number[0]);
    reply_add(reply, "%p", address);
    return !error;
}

/* A function of a library that is loaded at the first use, as Python loads it. */
static void *loaded(const char *library, const char *symbol, struct reply *reply)
{
    void *handle = dlopen(library, RTLD_NOW);
    void *function = handle ? dlsym(handle, symbol) : NULL;
    if (!function)
        reply_add(reply, "%s", dlerror());
    return function;
}

static bool add_chunk(add_trace_me_fn *add_trace_me, const struct args *args)
{
    const char *name = args->text[0];
    uintptr_t address = args->number[1];
    long bytes = (long)args->number[2];
    bool is_allocation = !strcmp(name, "MemoryAllocation");
    bool is_chunk = is_allocation || !strcmp(name, "MemoryDeallocation");
    void *allocator = is_chunk ? bfc_note(is_allocation, address, bytes) : NULL;
    if (add_trace_me)
        add_trace_me(allocator, strlen(name), name, (void *)address, bytes - 1, bytes);
    return add_trace_me;
}

CALL_SITE static bool run_tchunk(const struct args *args, struct reply *reply)
{
    return add_chunk(loaded("libtensorflow_framework.so.2", ADD_TRACE_ME, reply), args);
}

static struct standin_xla xla(struct reply *reply)
{
    struct standin_xla (*api)(void) = loaded("xla_cuda_plugin.so", "GetPjrtApi", reply);
    return api ? api() : (struct standin_xla){ NULL, NULL };
}

CALL_SITE static bool run_xchunk(const struct args *args, struct reply *reply)
{
    return add_chunk(xla(reply).add_trace_me, args);
}

static bool run_xsums(const struct args *args, struct reply *reply)
{
    (void)args;
    struct bfc_sums sums = bfc_sums();
    reply_add(reply, "%lu %lu %lu", sums.in_use, sums.peak, sums.reserved);
    return true;
}

CALL_SITE static bool run_xgiveup(const struct args *args, struct reply *reply)
{
    dump_memory_log_fn *dump_memory_log = xla(reply).dump_memory_log;
    if (dump_memory_log)
        dump_memory_log(NULL, args->number[0], 0);
    return dump_memory_log;
}

CALL_SITE static bool run_rallocate(const struct args *args, struct reply *reply)
{
    rmm_allocate_fn *allocate = loaded("librmm.so", RMM_ALLOCATE, reply);
    struct rmm_block from = { (char *)args->number[0], 1UL << 30, true };
    if (allocate)
        allocate(NULL, &from, args->number[1]);
    return allocate;
}

CALL_SITE static bool run_rfree(const struct args *args, struct reply *reply)
{
    rmm_free_fn *give_back = loaded("librmm.so", RMM_FREE, reply);
    if (give_back)
        give_back(NULL, (void *)args->number[0], args->number[1]);
    return give_back;
}

/* Chunks of CuPy's pool, by number; the reply is the pool's used_bytes(). */
static struct cupy_memory pooled[16];

static struct standin_cupy cupy(struct reply *reply)
{
    const char *library = "$ORIGIN/cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so";
    struct standin_cupy (*api)(void) = loaded(library, "PyInit_memory", reply);
    return api ? api() : (struct standin_cupy){ NULL, NULL, NULL };
}

static void add_used(struct reply *reply)
{
    size_t used = 0;
    for (int i = 0; i < 16; i++)
        used += pooled[i].address ? pooled[i].size : 0;
    reply_add(reply, "used=%lu", used);
}

CALL_SITE static bool run_cmalloc(const struct args *args, struct reply *reply)
{
    struct standin_cupy of = cupy(reply);
    struct cupy_memory memory = { .address = args->number[1] };
    struct cupy_chunk chunk = { .memory = &memory,
                                .offset = args->number[2],
                                .size = args->number[3] };
    if (of.init)
        of.init(&pooled[args->number[0] % 16], &chunk, NULL);
    add_used(reply);
    return of.init;
}

CALL_SITE static bool run_cfree(const struct args *args, struct reply *reply)
{
    struct standin_cupy of = cupy(reply);
    struct cupy_memory *block = &pooled[args->number[0] % 16];
    if (of.free && args->number[0] % 2)
        of.free(block, 0);
    else if (of.free)
        of.free_clone(block);
    add_used(reply);
    return of.free;
}

/* Of ONNX Runtime's arena: the next block is at the address. */
CALL_SITE static bool run_oalloc(const struct args *args, struct reply *reply)
{
    const struct ort_functions *(*api)(void) =
        loaded("libonnxruntime.so.1.31.1", "OrtGetApiBase", reply);
    if (!api)
        return false;
    struct ort_arena arena = { api(), (char *)args->number[0], 1UL << 30 };
    char *block = strcmp(args->text[2], "stream") == 0
                      ? arena.functions->alloc_on_stream(&arena, args->number[1], NULL)
                      : arena.functions->alloc(&arena, args->number[1]);
    return block == (args->number[1] <= arena.left ? arena.next : NULL);
}

CALL_SITE static bool run_ofree(const struct args *args, struct reply *reply)
{
    const struct ort_functions *(*api)(void) =
        loaded("libonnxruntime.so.1.31.1", "OrtGetApiBase", reply);
    if (api)
        api()->free(NULL, (void *)args->number[0]);
    return api;
}

const struct command more_commands[] = {
    { "tmalloc <name> SIZE [COUNT] [stream=N] [raw]", NEEDS_API, run_tmalloc },
    { "tleak <forward|backward|optimizer|loader> TENSORS SIZE", NEEDS_API, run_tleak },
    { "tfree <name> [TENSORS]", NEEDS_API, run_tfree },
    { "tempty", NEEDS_API, run_tempty },
    { "trecord <name>", NEEDS_API, run_trecord },
    { "tsync", NEEDS_API, run_tsync },
    { "tsnapshot", NEEDS_API, run_tsnapshot },
    { "tchurn THREADS STEPS SEED", NEEDS_API, run_tchurn },
    { "tflood THREADS PAIRS SIZE", NEEDS_API, run_tflood },
    { "trate RATE <seconds> SIZE", NEEDS_API, run_trate },
    { "tregion SIZE", NEEDS_API, run_tregion },
    { "tchunk <MemoryAllocation|MemoryDeallocation> ADDRESS SIZE", NEEDS_API, run_tchunk },
    { "xchunk <MemoryAllocation|MemoryDeallocation> ADDRESS SIZE", NEEDS_API, run_xchunk },
    { "xsums", NEEDS_API, run_xsums },
    { "xgiveup SIZE", NEEDS_API, run_xgiveup },
    { "rallocate ADDRESS SIZE", NEEDS_API, run_rallocate },
    { "rfree ADDRESS SIZE", NEEDS_API, run_rfree },
    { "cmalloc NUMBER REGION OFFSET SIZE", NEEDS_API, run_cmalloc },
    { "cfree NUMBER", NEEDS_API, run_cfree },
    { "oalloc ADDRESS SIZE <alloc|stream>", NEEDS_API, run_oalloc },
    { "ofree ADDRESS", NEEDS_API, run_ofree },
    { .usage = NULL },
};
