/* What the files of the workload share: commands, replies, running totals. */
#ifndef STANDIN_WORKLOAD_H
#define STANDIN_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workload_backend.h"
#include "workload_kinds.h"

/* ---- truth: what this process has really done ------------------------- */

/* GPU work, beside the counts of memory below: launches that run; launches into a graph; graph
 * launches; copies and their bytes; sets. */
#define WORK_FIELDS(FIELD) \
    FIELD(launches)        \
    FIELD(captured) FIELD(graph_launches) FIELD(copies) FIELD(copy_bytes) FIELD(sets)

/* Counts of one thread; merged into the process's when it is done, so that counting costs nothing
 * while calls are being timed. */
struct tally {
    uint64_t allocs;     /* successful, with an address */
    uint64_t frees;      /* successful, of an address */
    uint64_t failed;     /* calls that returned an error */
    uint64_t nullfrees;  /* successful, of no address */
    int64_t live, bytes; /* change of the live blocks and bytes of GPUs */
    struct kind_tally kinds[MEMORY_KINDS_COUNT];
    int last_error;
#define FIELD(name) uint64_t name;
    WORK_FIELDS(FIELD)
#undef FIELD
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

/* Counts a plain block allocated (1) or freed (-1), where calls are timed. */
static inline void tally_block(struct tally *tally, int64_t count, size_t bytes)
{
    tally->live += count;
    tally->bytes += count * (int64_t)bytes;
    tally->kinds[KIND_DEVICE].live += count;
    tally->kinds[KIND_DEVICE].bytes += count * (int64_t)bytes;
}

/* Call and count. Inlined, so that the caller is the one seen on the stack. */
static inline __attribute__((always_inline)) void *tally_alloc(struct tally *tally, size_t bytes)
{
    void *address = NULL;
    int error = api.alloc(&address, bytes);
    if (error) {
        tally->failed++;
        tally->last_error = error;
        return NULL;
    }
    if (address) { /* the runtime gives NULL for zero bytes: nothing is live */
        tally->allocs++;
        tally_block(tally, 1, bytes);
    }
    return address;
}

static inline __attribute__((always_inline)) bool tally_free(struct tally *tally, void *address,
                                                             size_t bytes)
{
    int error = api.release(address);
    if (error) {
        tally->failed++;
        tally->last_error = error;
        return false;
    }
    if (!address) {
        tally->nullfrees++;
        return true;
    }
    tally->frees++;
    tally_block(tally, -1, bytes);
    return true;
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

/* A function that calls the API under a name that tests look for in stacks. */
#define CALL_SITE __attribute__((noinline))

/* ---- slots: live blocks that commands can name ------------------------- */

struct slot {
    void *address;
    size_t bytes;
    int device;
    void *context; /* see thread_context */
    bool live;
};

void slot_add(void *address, size_t bytes);
/* The slot of `number`; NULL if there is none. */
struct slot *slot_at(size_t number);
void slots_forget(void);
/* Removes all memory of the context `context` of `device` from the totals, the kslots too. */
void slots_end_context(struct tally *tally, int device, const void *context);
/* The calling thread's device, as the setdevice command left it. Kept here
 * because asking the API would itself be a call that a tracer sees. */
extern _Thread_local int thread_device;

/* ---- commands ---------------------------------------------------------- */

struct reply {
    char text[8192];
    size_t length;
    char *more; /* after the text, however long; on the heap, or NULL */
};

void reply_add(struct reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "CUDA error N", unless it is 0; returns whether it is. */
bool reply_error(struct reply *reply, int error);

/* Adds " failed=N error=E" if anything failed. */
void reply_failures(struct reply *reply, const struct tally *tally);
/* The end of a command: its counts are the process's, too, and it went well, whatever failed. */
bool reply_done(struct reply *reply, const struct tally *tally);
/* The same with "frees=N failed=N [error=E] [dead=N]": of slots that were not live. */
bool reply_frees(struct reply *reply, const struct tally *tally, uint64_t dead);

/* "allocs=N frees=N failed=N" */
void reply_tally(struct reply *reply, const struct tally *tally);

#define MAX_WORDS 64
#define MAX_CALLS 1000000000000ull /* limit of one command */

struct words {
    int count;                 /* may exceed MAX_WORDS; `word` has no more */
    char *word[MAX_WORDS + 1]; /* NULL after the last; word[0] is the command */
    char *rest;                /* all after the command, unsplit */
};

enum {
    NEEDS_API = 1, /* refused until a library is loaded */
    ON_MAIN = 2,   /* refused on a worker thread */
};

struct command {
    const char *name;
    const char *usage;
    int min_words, max_words; /* after the command */
    int flags;
    /* Returns whether to reply "ok"; the reply's text follows that word. */
    bool (*run)(struct words *words, struct reply *reply);
};

/* Each ends with a row without a name. */
extern const struct command main_commands[], memory_commands[], stress_commands[],
    thread_commands[], process_commands[], module_commands[], launch_commands[], graph_commands[],
    copy_commands[], async_commands[], share_commands[], gmemory_commands[], vmm_commands[],
    vmm_stress_commands[], allocate_commands[], context_commands[], symbol_commands[];
/* Commands that not every program has. */
extern const struct command more_commands[];

/* Runs one command line (which it cuts into words); returns whether it went well. */
bool run_line_quietly(char *line, struct reply *reply, bool on_worker);
/* Runs lines separated by `separator`, outside '', until one is `exit`. */
void run_sequence(char *text, char separator);

extern bool exiting;
extern int exit_code;

/* Parse a whole word, or leave a reason in `reply` and return false. */
bool parse_u64(const char *word, uint64_t max, uint64_t *value, struct reply *reply);
/* Word `number`, if there is one; else `value` stays. */
bool parse_optional(const struct words *words, int number, uint64_t max, uint64_t *value,
                    struct reply *reply);
bool parse_double(const char *word, double max, double *value, struct reply *reply);

/* The stream that `text` names: a number of the stream command's, `legacy`, or `per-thread`; NULL
 * is NULL. `captured` (may be NULL) is whether it is being captured. Leaves a reason in `reply` and
 * returns false. */
bool stream_named(const char *text, void **stream, bool *captured, struct reply *reply);
/* Streams, graphs and modules of the context were destroyed with it; see thread_context. */
void streams_forget_context(int device, const void *context);
/* `joining` then waits for `stream`, and so joins its capture, too. */
int stream_join(void *joining, void *stream);
int destroy_graph(void *graph, void *exec);
void modules_forget_context(int device, const void *context);

/* Runs `line` on the worker thread `name` and waits for it. */
bool run_on_worker(const char *name, char *line, struct reply *reply);
void workers_forget(void);
/* A child of the fork command has nothing mapped. */
void vmm_forget(void);

uint64_t now_ns(void);
void sleep_until_ns(uint64_t time_ns);

#endif
