/*
 * Commands about contexts, for the backend that has a say in them. What is
 * current on a thread is followed here, since asking the API would itself be a
 * call that a tracer sees.
 */
#include <string.h>

#include "workload.h"

#define MAX_BELOW 30

struct made_context {
    bool live;
    int device;
    void *context;
};

static struct list contexts = LIST(struct made_context, "context");

/* The contexts below the current one on the calling thread's stack. */
static _Thread_local struct {
    void *context; /* NULL: the workload's own of `device` */
    int device;
} below[MAX_BELOW];
static _Thread_local int depth;

static bool enter(const struct made_context *made)
{
    thread_context = made->context;
    thread_device = made->device;
    return true;
}

static bool push(const struct made_context *made)
{
    below[depth].context = thread_context;
    below[depth++].device = thread_device;
    return enter(made);
}

static void pop(void)
{
    depth--;
    thread_context = below[depth].context;
    thread_device = below[depth].device;
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
    if (!reply_error(reply, api.context_destroy(made->context)))
        return false;
    made->live = false;
    forget_context(&tally, made->device, made->context);
    truth_add(&tally);
    reply_add(reply, "released=%ld", -tally.gpu.live);
    return reply_error(reply, leave(made->context));
}

static bool create(const struct args *args, struct reply *reply)
{
    int device = args->text[1] ? (int)args->number[1] : thread_device;
    struct made_context made = { .live = true, .device = device };
    if (!reply_error(reply, api.context_create(&made.context, 0, device)))
        return false;
    reply_add(reply, "%zu 0x%lx", list_add(&contexts, &made), (uintptr_t)made.context);
    return push(&made);
}

static bool has_contexts(struct reply *reply)
{
    return api.context_create || reply_no(reply, "this backend has no say in contexts");
}

CALL_SITE static bool run_ctx(const struct args *args, struct reply *reply)
{
    const char *what = args->text[0];
    if (!has_contexts(reply))
        return false;
    if (depth == MAX_BELOW && (!strcmp(what, "create") || !strcmp(what, "push")))
        return reply_no(reply, "the stack of contexts is full");
    if (!strcmp(what, "create"))
        return create(args, reply);
    if (!strcmp(what, "pop")) {
        if (!depth || !reply_error(reply, api.context_pop(NULL)))
            return depth ? false : reply_no(reply, "there is no context below");
        pop();
        return true;
    }
    struct made_context *made = list_named(&contexts, args->number[1], reply);
    if (!args->text[1] || !made)
        return false;
    if (!strcmp(what, "destroy"))
        return destroy(made, reply);
    if (!strcmp(what, "push"))
        return reply_error(reply, api.context_push(made->context)) && push(made);
    return reply_error(reply, api.context_set(made->context)) && enter(made);
}

/* Of the current device. The release of the last reference ends the context as a
 * reset does. */
CALL_SITE static bool run_primary(const struct args *args, struct reply *reply)
{
    bool ended = false;
    struct tally tally = { 0 };
    if (!has_contexts(reply))
        return false;
    if (!strcmp(args->text[0], "retain"))
        return reply_error(reply, api.retain_primary(thread_device));
    if (!reply_error(reply, api.release_primary(thread_device, &ended)))
        return false;
    if (ended) {
        thread_context = NULL;
        forget_context(&tally, thread_device, NULL);
    }
    truth_add(&tally);
    reply_add(reply, "ended=%d released=%ld", ended, -tally.gpu.live);
    return true;
}

static bool run_checkpoint(const struct args *args, struct reply *reply)
{
    return has_contexts(reply) &&
           reply_error(reply, api.checkpoint(args->text[0], (int)args->number[1]));
}

const struct command context_commands[] = {
    { "checkpoint <lock|checkpoint|restore|unlock> PID", NEEDS_API, run_checkpoint },
    { "ctx <create|pop|push|set|destroy> [CONTEXT|DEVICE]", NEEDS_API, run_ctx },
    { "primary <retain|release>", NEEDS_API, run_primary },
    { .usage = NULL },
};
