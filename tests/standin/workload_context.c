/*
 * Commands about contexts, for the backend that has a say in them. What is
 * current on a thread is followed here, since asking the API would itself be a
 * call that a tracer sees.
 */
#include <stdlib.h>
#include <string.h>

#include "workload.h"

#define MAX_BELOW 30

/* One command runs at a time, on whichever thread: no lock. */
static struct made_context {
    void *context;
    int device;
    bool live;
} * contexts;
static size_t context_count;

/* The contexts below the current one on the calling thread's stack. */
static _Thread_local struct {
    void *context; /* NULL: the workload's own of `device` */
    int device;
} below[MAX_BELOW];
static _Thread_local int depth;

static void enter(const struct made_context *made)
{
    thread_context = made->context;
    thread_device = made->device;
}

static bool push(const struct made_context *made)
{
    below[depth].context = thread_context;
    below[depth++].device = thread_device;
    enter(made);
    return true;
}

static void pop(void)
{
    depth--;
    thread_context = below[depth].context;
    thread_device = below[depth].device;
}

static bool create(const char *word, struct reply *reply)
{
    uint64_t device = (uint64_t)thread_device;
    struct made_context made = { .live = true };
    if (word && !parse_u64(word, INT32_MAX, &device, reply))
        return false;
    made.device = (int)device;
    if (depth == MAX_BELOW) {
        reply_add(reply, "the stack of contexts is full");
        return false;
    }
    if (!reply_error(reply, api.kinds->contexts->create(&made.context, 0, made.device)))
        return false;
    contexts = realloc(contexts, (context_count + 1) * sizeof *contexts);
    contexts[context_count++] = made;
    reply_add(reply, "%zu 0x%lx", context_count - 1, (uintptr_t)made.context);
    return push(&made);
}

/* The thread's contexts no longer exist, below either: as far as the driver popped them, the one
 * below is current; else the workload's own context is made so. */
static int leave(const void *context)
{
    if (thread_context != context)
        return 0;
    if (depth) {
        pop();
        return 0;
    }
    thread_context = NULL;
    return api.set_device(thread_device);
}

static void forget_context(struct tally *tally, int device, const void *context)
{
    modules_forget_context(device, context);
    streams_forget_context(device, context);
    slots_end_context(tally, device, context);
}

static bool destroy(struct made_context *made, struct reply *reply)
{
    struct tally tally = { 0 };
    if (!reply_error(reply, api.kinds->contexts->destroy(made->context)))
        return false;
    made->live = false;
    forget_context(&tally, made->device, made->context);
    truth_add(&tally);
    reply_add(reply, "released=%ld", -tally.live);
    return reply_error(reply, leave(made->context));
}

static bool run_pop(struct reply *reply)
{
    if (depth == 0) {
        reply_add(reply, "there is no context below");
        return false;
    }
    if (!reply_error(reply, api.kinds->contexts->pop(NULL)))
        return false;
    pop();
    return true;
}

static struct made_context *context_named(const char *word, struct reply *reply)
{
    uint64_t number;
    if (!parse_u64(word, SIZE_MAX, &number, reply))
        return NULL;
    if (number < context_count && contexts[number].live)
        return &contexts[number];
    reply_add(reply, "no context %s", word);
    return NULL;
}

static bool push_or_set(const char *what, struct made_context *made, struct reply *reply)
{
    const struct context_api *calls = api.kinds->contexts;
    if (!strcmp(what, "set")) {
        if (!reply_error(reply, calls->set(made->context)))
            return false;
        enter(made);
        return true;
    }
    if (strcmp(what, "push") || depth == MAX_BELOW) {
        reply_add(reply, "ctx: cannot %s", what);
        return false;
    }
    return reply_error(reply, calls->push(made->context)) && push(made);
}

static bool has_contexts(struct reply *reply)
{
    if (!api.kinds->contexts)
        reply_add(reply, "this backend has no say in contexts");
    return api.kinds->contexts != NULL;
}

CALL_SITE static bool run_ctx(struct words *words, struct reply *reply)
{
    const char *what = words->word[1], *argument = words->word[2];
    if (!has_contexts(reply))
        return false;
    if (!strcmp(what, "create"))
        return create(argument, reply);
    if (!strcmp(what, "pop"))
        return run_pop(reply);
    if (!argument) {
        reply_add(reply, "ctx %s: which context?", what);
        return false;
    }
    struct made_context *made = context_named(argument, reply);
    if (!made)
        return false;
    return strcmp(what, "destroy") ? push_or_set(what, made, reply) : destroy(made, reply);
}

/* Of the current device. The release of the last reference ends the context as a
 * reset does. */
CALL_SITE static bool run_primary(struct words *words, struct reply *reply)
{
    bool ended = false;
    if (!has_contexts(reply))
        return false;
    if (!strcmp(words->word[1], "retain"))
        return reply_error(reply, api.kinds->contexts->retain_primary(thread_device));
    if (strcmp(words->word[1], "release")) {
        reply_add(reply, "%s: expected retain or release", words->word[1]);
        return false;
    }
    if (!reply_error(reply, api.kinds->contexts->release_primary(thread_device, &ended)))
        return false;
    struct tally tally = { 0 };
    if (ended) {
        thread_context = NULL;
        forget_context(&tally, thread_device, NULL);
    }
    truth_add(&tally);
    reply_add(reply, "ended=%d released=%ld", ended, -tally.live);
    return true;
}

const struct command context_commands[] = {
    { "ctx", "ctx create [DEVICE] | pop | push CONTEXT | set CONTEXT | destroy CONTEXT", 1, 2,
      NEEDS_API, run_ctx },
    { "primary", "primary retain|release", 1, 1, NEEDS_API, run_primary },
    { .name = NULL },
};
