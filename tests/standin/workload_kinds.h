/* Kinds of memory: their totals, and the slots of all memory that is not `alloc`'s. */
#ifndef STANDIN_WORKLOAD_KINDS_H
#define STANDIN_WORKLOAD_KINDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

struct kind_tally {
    int64_t live, bytes; /* what was added to the live ones; negative: taken off */
};

struct reply;
struct tally;

/* Counts in `allocs`, `frees`, `failed` and `nullfrees` are the caller's; these only count live
 * memory. `on_host` is for memory of a GPU kind that was requested on the host: it counts with its
 * kind but not in `live` and `bytes`. */
void tally_gain(struct tally *tally, enum memory_kind kind, size_t bytes, bool on_host);
void tally_lose(struct tally *tally, enum memory_kind kind, size_t bytes, bool on_host);

/* The result of a call, as a command can name it by its number. */
struct kslot {
    enum memory_kind kind;
    bool live;
    bool on_host;
    bool with_context; /* freed with its context, though its kind is not */
    bool kept;         /* set by `release`: freed once, but some is left */
    uint64_t handle;   /* the address; for arrays and the like, the handle */
    size_t bytes;
    int device;
    void *context; /* NULL: the one that the workload uses on `device` */
    /* Frees it: 0 or the CUDA error. NULL for memory that no call frees. */
    int (*release)(struct kslot *slot);
    void *owner;      /* of a variable: its module; for others, as its maker likes */
    uint64_t more[4]; /* as its maker likes */
};

/* Adds a live slot with the calling thread's device and context, counts it in
 * `tally` (allocs too, unless there is no `release`), and returns its number.
 * The slot of a number can move when another is added. */
size_t kslot_add(struct tally *tally, struct kslot slot);
size_t kslot_count(void);
/* The slot of `number`; NULL if there is none. */
struct kslot *kslot_at(size_t number);
/* The slot that `word` gives the number of, live or not; else leaves a reason in
 * `reply` and returns NULL. */
struct kslot *kslot_named(const char *word, struct reply *reply);
/* Calls `release`, counts the free (or the failure), and ends the slot unless `release` set
 * `kept`. */
bool kslot_release(struct tally *tally, struct kslot *slot);
/* The same with the result of a call that was to free it. */
bool kslot_freed(struct tally *tally, struct kslot *slot, int error);
/* Removes a live slot from the totals without any call. */
void kslot_end(struct tally *tally, struct kslot *slot);
/* The same for all that ends with the context `context` of `device`. */
void kslots_end_context(struct tally *tally, int device, const void *context);
/* The same for the slots of `owner`. */
void kslots_end_owned(struct tally *tally, const void *owner);
void kslots_forget(void);

/* Replies " 0x.." for the first few of a command's handles: call with shown = 0,
 * 1, ... */
void reply_handle(struct reply *reply, uint64_t shown, uint64_t handle);

/* The calling thread's context, if it is one of the ctx command's; else NULL,
 * for the one that the workload uses on its device. */
extern _Thread_local void *thread_context;

#endif
