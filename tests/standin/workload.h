/* What the files of the workload share: commands, replies, running totals, slots of memory. */
#ifndef STANDIN_WORKLOAD_H
#define STANDIN_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workload_backend.h"

/* ---- truth: what this process has really done ------------------------- */

/*
 * ROW(constant, name, on the GPU, ends with its context)
 *
 * What is on the GPU is in the truth's `live` and `bytes` too.
 */
#define MEMORY_KINDS(ROW)                    \
    ROW(DEVICE, device, true, true)          \
    ROW(PITCHED, pitched, true, true)        \
    ROW(ARRAY, array, true, true)            \
    ROW(MANAGED, managed, true, true)        \
    ROW(PINNED, pinned, false, true)         \
    ROW(REGISTERED, registered, false, true) \
    ROW(ASYNC, async, true, false)           \
    ROW(VMM, vmm, true, false)               \
    ROW(STATIC, static, true, true)          \
    ROW(GRAPH, graph, true, false)           \
    ROW(IMPORTED, imported, false, false)

enum memory_kind {
#define ROW(constant, name, on_gpu, ends_with_context) KIND_##constant,
    MEMORY_KINDS(ROW)
#undef ROW
        MEMORY_KINDS_COUNT
};

struct memory_kind_row {
    const char *name;
    bool on_gpu, ends_with_context;
};
extern const struct memory_kind_row memory_kinds[MEMORY_KINDS_COUNT];

/* Counts, as the truth shows them: successful calls with an address, of an address, and of no
 * address; calls that returned an error; and GPU work: launches that run, launches into a graph,
 * graph launches, copies and their bytes, sets. */
#define COUNTS(FIELD) \
    FIELD(allocs)     \
    FIELD(frees)      \
    FIELD(failed)     \
    FIELD(nullfrees)  \
    FIELD(launches)   \
    FIELD(captured) FIELD(graph_launches) FIELD(copies) FIELD(copy_bytes) FIELD(sets)

struct held {
    int64_t live, bytes; /* what was added to the live ones; negative: taken off */
};

/* Counts of one thread; merged into the process's when it is done, so that counting costs nothing
 * while calls are being timed. */
struct tally {
#define FIELD(name) uint64_t name;
    COUNTS(FIELD)
#undef FIELD
    struct held gpu, kinds[MEMORY_KINDS_COUNT];
    int last_error;
};

#define TRUTH_TEXT_BYTES 2048

/* Adds `part` to `total`. */
void tally_add(struct tally *total, const struct tally *part);
void truth_add(const struct tally *tally);
/* "live=N bytes=N ..." or the same as the inside of a JSON object. */
const char *truth_text(char *buffer, size_t size, bool json);
/* Continues counting, from zero, in `shared` memory: see the fork command. */
size_t truth_size(void);
void truth_restart_in(void *shared);
const char *truth_text_of(const void *shared, char *buffer, size_t size);

/* Changes live memory by `count` blocks of `bytes` together. `on_host` is for memory of a GPU kind
 * that was requested on the host: it counts with its kind only. */
static inline void tally_change(struct tally *tally, enum memory_kind kind, int64_t count,
                                int64_t bytes, bool on_host)
{
    tally->kinds[kind].live += count;
    tally->kinds[kind].bytes += bytes;
    if (!memory_kinds[kind].on_gpu || on_host)
        return;
    tally->gpu.live += count;
    tally->gpu.bytes += bytes;
}

/* Counts the result of a call; returns whether it succeeded. */
static inline bool tally_result(struct tally *tally, int error)
{
    if (error) {
        tally->failed++;
        tally->last_error = error;
    }
    return error == 0;
}

/* Call and count. Inlined, so that the caller is the one seen on the stack. */
static inline __attribute__((always_inline)) void *tally_alloc(struct tally *tally, size_t bytes)
{
    void *address = NULL;
    /* The runtime gives NULL for zero bytes: nothing is live. */
    if (!tally_result(tally, api.alloc(&address, bytes)) || !address)
        return NULL;
    tally->allocs++;
    tally_change(tally, KIND_DEVICE, 1, (int64_t)bytes, false);
    return address;
}

static inline __attribute__((always_inline)) bool tally_free(struct tally *tally, void *address,
                                                             size_t bytes)
{
    if (!tally_result(tally, api.release(address)))
        return false;
    if (!address) {
        tally->nullfrees++;
        return true;
    }
    tally->frees++;
    tally_change(tally, KIND_DEVICE, -1, -(int64_t)bytes, false);
    return true;
}

/* A function that calls the API under a name that tests look for in stacks: the compiler neither
 * inlines it nor makes a copy of it with another name. */
#define CALL_SITE __attribute__((noipa))

/* ---- replies ----------------------------------------------------------- */

struct reply {
    char text[8192];
    size_t length;
    char *more; /* after the text, however long; on the heap, or NULL */
};

void reply_add(struct reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "CUDA error N", unless it is 0; returns whether it is. */
bool reply_error(struct reply *reply, int error);
/* Leaves a reason, and returns false. */
bool reply_no(struct reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds " failed=N error=E" if anything failed. */
void reply_failures(struct reply *reply, const struct tally *tally);
/* The end of a command: its counts are the process's, too, and it went well, whatever failed. */
bool reply_done(struct reply *reply, const struct tally *tally);
/* The same with "frees=N failed=N [error=E] [dead=N]": of slots that were not live. */
bool reply_frees(struct reply *reply, const struct tally *tally, uint64_t dead);
/* "allocs=N frees=N failed=N" */
void reply_tally(struct reply *reply, const struct tally *tally);
/* " 0x.." for the first few of a command's handles: call with shown = 0, 1, ... */
void reply_handle(struct reply *reply, uint64_t shown, uint64_t handle);
/* Bytes as hexadecimal digits, and back; the second leaves a reason. */
void reply_hex(struct reply *reply, const void *bytes, size_t count);
bool parse_hex(const char *text, void *bytes, size_t count, struct reply *reply);

/* ---- lists: objects that commands can name by their numbers ------------- */

/* One command runs at a time, on whichever thread: no lock. Items begin with `bool live`. */
struct list {
    const char *what;
    size_t item_bytes, count, capacity;
    char *items;
};
#define LIST(type, name)                         \
    {                                            \
        .what = name, .item_bytes = sizeof(type) \
    }

/* Adds a copy; returns its number. Items can move when another is added. */
size_t list_add(struct list *list, const void *item);
/* The item of that number; NULL if there is none. */
void *list_at(const struct list *list, uint64_t number);
/* The same; leaves a reason if there is none, or it is not live. */
void *list_named(const struct list *list, uint64_t number, struct reply *reply);
/* ITEM is each in turn; LIST may grow meanwhile. */
#define FOR_EACH(item, list) \
    for (size_t item##_number = 0; (item = list_at(list, item##_number)); item##_number++)

/* ---- slots: memory that commands can name -------------------------------- */

/* The result of an allocating call. */
struct slot {
    bool live;
    bool on_host;
    bool with_context; /* freed with its context, though its kind is not */
    bool kept;         /* set by `release`: freed once, but some is left */
    enum memory_kind kind;
    int device;
    uint64_t handle; /* the address; for arrays and the like, the handle */
    size_t bytes;
    void *context; /* NULL: the one that the workload uses on `device` */
    /* Frees it: 0 or the CUDA error. NULL for memory that no call frees. */
    int (*release)(struct slot *slot);
    void *owner;      /* of a variable: its module; for others, as its maker likes */
    uint64_t more[3]; /* as its maker likes */
};

/* Those of `alloc`, and those of all other commands ("kslots"). */
extern struct list blocks, slots;

/* Remembers a block of `alloc`'s that is in the totals already. */
void block_add(void *address, size_t bytes);
/* Adds a live slot with the calling thread's device and context, counts it in
 * `tally` (allocs too, unless there is no `release`), and returns its number. */
size_t slot_add(struct tally *tally, struct slot slot);
static inline struct slot *slot_at(uint64_t number)
{
    return list_at(&slots, number);
}
/* The live slot of this kind and address; NULL if there is none. */
struct slot *slot_of(enum memory_kind kind, uint64_t handle);
/* Calls `release`, counts the free (or the failure), and ends the slot unless `release` set
 * `kept`. */
bool slot_release(struct tally *tally, struct slot *slot);
/* The same with the result of a call that was to free it. */
bool slot_freed(struct tally *tally, struct slot *slot, int error);
/* Removes a live slot from the totals without any call. */
void slot_end(struct tally *tally, struct slot *slot);
/* The same for all that ends with the context `context` of `device`, of both lists. */
void slots_end_context(struct tally *tally, int device, const void *context);
/* The same for the slots of `owner`. */
void slots_end_owned(struct tally *tally, const void *owner);
void slots_forget(void);

/* The calling thread's device, as the setdevice command left it, and its context, if it is one of
 * the ctx command's; else NULL, for the one that the workload uses on its device. Kept here because
 * asking the API would itself be a call that a tracer sees. */
extern _Thread_local int thread_device;
extern _Thread_local void *thread_context;

/* ---- commands ---------------------------------------------------------- */

#define MAX_WORDS 1024
#define MAX_ARGUMENTS 10

/* What a command line gave to the arguments that the command's usage names, in that order. */
struct args {
    const char *text[MAX_ARGUMENTS]; /* NULL if it is absent */
    uint64_t number[MAX_ARGUMENTS];  /* absent: 1 for a COUNT, else 0 */
    int count;                       /* of the words after the command, for `...` */
    char *word[MAX_WORDS + 1];       /* NULL after the last */
    const char *rest;                /* all of them, unsplit */
    const struct command *command;
};

enum {
    NEEDS_API = 1, /* refused until a library is loaded */
    ON_MAIN = 2,   /* refused on a worker thread */
};

/*
 * A usage is the command's name and its arguments:
 *
 *     NUMBER      a number               <text>     any word
 *     [NUMBER]    one that may be absent  [<text>]
 *     [name=NUMBER] [name=] [flag]        after the others, in any order
 *     ...         any words
 */
struct command {
    const char *usage;
    int flags;
    /* Returns whether to reply "ok"; the reply's text follows that word. */
    bool (*run)(const struct args *args, struct reply *reply);
};

/* Each ends with a row without a usage. */
extern const struct command main_commands[], memory_commands[], kind_commands[], stress_commands[],
    thread_commands[], process_commands[], module_commands[], launch_commands[], graph_commands[],
    copy_commands[], async_commands[], gmemory_commands[], vmm_commands[], context_commands[],
    cuda13_commands[];
/* Commands that not every program has. */
extern const struct command more_commands[];

/* Runs one command line (which it cuts into words); returns whether it went well. */
bool run_line_quietly(char *line, struct reply *reply, bool on_worker);
/* Runs lines separated by `separator`, outside '', until one is `exit`. */
void run_sequence(char *text, char separator);

extern bool exiting;
extern int exit_code;

/* Parse a whole word, or leave a reason in `reply` and return false. */
bool parse_u64(const char *word, uint64_t *value, struct reply *reply);
bool parse_double(const char *word, double max, double *value, struct reply *reply);

/* The stream that `text` names: a number of the stream command's, `legacy`, or `per-thread`; NULL
 * is NULL. `captured` (may be NULL) is whether it is being captured. Leaves a reason in `reply` and
 * returns false. */
bool stream_named(const char *text, void **stream, bool *captured, struct reply *reply);
/* The same for one that is not captured. */
bool running_stream(const char *text, void **stream, struct reply *reply);
/* The stream of that number is captured, for graphics, or no more. */
void stream_captured(const char *text, bool is_captured);
/* Streams, graphs and modules of the context were destroyed with it; see thread_context. */
void streams_forget_context(int device, const void *context);
void modules_forget_context(int device, const void *context);
/* `joining` then waits for `stream`, and so joins its capture, too. */
int stream_join(void *joining, void *stream);
int destroy_graph(void *graph, void *exec);

/* The kernel of that name of the modules, the last loaded first; else one that every program has,
 * by its name or its number. Leaves a reason in `reply` and returns false. */
bool kernel_named(const char *name, const void **kernel, struct reply *reply);
struct kernel {
    char *name;
    const void *kernel; /* what to launch */
};
/* The kernels of the module that was loaded last; NULL if it was unloaded, or there is none. */
const struct kernel *last_module(size_t *count);

/* A slot of stream-ordered memory that is freed on `stream`, not yet added. */
struct slot async_slot(enum memory_kind kind, void *address, size_t bytes, void *stream);
/* Of a new pool, on the thread's device or on the host. */
/* Where the calling thread's next memory is to be; NULL: on its device. */
CUmemLocation location_named(const char *where);
CUmemPoolProps pool_properties(const char *where);

/* Runs `line` on the worker thread `name` and waits for it. */
bool run_on_worker(const char *name, char *line, struct reply *reply);
void workers_forget(void);
/* A child of the fork command has nothing mapped. */
void vmm_forget(void);

/* One thread of a crew: threads that do the same at the same time. */
struct member {
    void (*body)(struct member *member);
    uint64_t number, count;
    size_t bytes;
    void *shared; /* as `body` likes */
    struct tally tally;
};
/* Runs `threads` of them at once, each with its number, waits for them, and sums their counts,
 * which are the process's, too. */
struct tally run_crew(uint64_t threads, struct member each);

uint64_t now_ns(void);
void sleep_until_ns(uint64_t time_ns);
/* `state` is not 0, a fixed point. */
uint64_t next_random(uint64_t *state);

#endif
