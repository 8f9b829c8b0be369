/* Commands that launch kernels: one after another, and in storms. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "workload.h"

#define STORM_KERNELS 3

static const struct launch_method *find_launch_method(const char *via, struct reply *reply)
{
    const struct launch_method *method = api.launches;
    while (via && method->name && strcmp(method->name, via) && strcmp(method->function, via))
        method++;
    if (method->name)
        return method;
    reply_add(reply, "no way to launch via %s", via);
    return NULL;
}

CALL_SITE static void make_launches(struct tally *tally, const struct launch_method *method,
                                    const struct launch *launch, uint64_t count, bool captured)
{
    uint64_t *counter = captured ? &tally->captured : &tally->launches;
    for (uint64_t i = 0; i < count; i++)
        if (tally_result(tally, method->call(launch)))
            ++*counter;
}

static void reply_launches(struct reply *reply, const struct tally *tally,
                           const struct launch *launch)
{
    const void *handle;
    reply_add(reply, "launches=%lu captured=%lu", tally->launches, tally->captured);
    if (launch->kernel && !api.handle(launch->kernel, &handle)) {
        reply_add(reply, " handle=0x%lx", (uintptr_t)handle);
        if (handle != launch->kernel)
            reply_add(reply, " host=0x%lx", (uintptr_t)launch->kernel);
    }
    reply_failures(reply, tally);
}

#define DEFAULT_SHAPE .grid = { 80, 1, 1 }, .block = { 128, 1, 1 }

/* Every kernel of the last module, each `count` times. */
static bool launch_all(struct tally *tally, const struct launch_method *method,
                       struct launch *launch, uint64_t count, bool captured, struct reply *reply)
{
    size_t kernels;
    const struct kernel *kernel = last_module(&kernels);
    if (!kernel)
        return reply_no(reply, "no module");
    for (size_t i = 0; i < kernels; i++) {
        launch->kernel = kernel[i].kernel;
        make_launches(tally, method, launch, count, captured);
    }
    launch->kernel = NULL; /* there is no single handle */
    return true;
}

static bool parse_shape(const char *text, unsigned int *sides, struct reply *reply)
{
    return !text || sscanf(text, "%u,%u,%u", &sides[0], &sides[1], &sides[2]) == 3 ||
           reply_no(reply, "%s: expected X,Y,Z", text);
}

static bool run_launch(const struct args *args, struct reply *reply)
{
    struct launch launch = { DEFAULT_SHAPE };
    bool captured, all = !strcmp(args->text[0], "all");
    const struct launch_method *method = find_launch_method(args->text[3], reply);
    if (!method || !stream_named(args->text[2], &launch.stream, &captured, reply) ||
        !parse_shape(args->text[4], launch.grid, reply) ||
        !parse_shape(args->text[5], launch.block, reply))
        return false;
    struct tally tally = { 0 };
    if (all ? !launch_all(&tally, method, &launch, args->number[1], captured, reply)
            : !kernel_named(args->text[0], &launch.kernel, reply))
        return false;
    if (!all)
        make_launches(&tally, method, &launch, args->number[1], captured);
    truth_add(&tally);
    reply_launches(reply, &tally, &launch);
    return true;
}

/* ---- storms ------------------------------------------------------------ */

/* The kernels that the threads of a storm launch in turn; each starts with another. */
struct storm {
    const struct launch_method *method;
    struct launch launches[STORM_KERNELS];
    atomic_uint_least64_t launched[STORM_KERNELS];
};

CALL_SITE static void storm_body(struct member *member)
{
    struct storm *storm = member->shared;
    uint64_t launched[STORM_KERNELS] = { 0 };
    struct tally tally = { 0 };
    unsigned int kernel = (unsigned int)(member->number % STORM_KERNELS);
    for (uint64_t i = 0; i < member->count; i++) {
        launched[kernel] += tally_result(&tally, storm->method->call(&storm->launches[kernel]));
        kernel = kernel + 1 == STORM_KERNELS ? 0 : kernel + 1;
    }
    for (int i = 0; i < STORM_KERNELS; i++) {
        tally.launches += launched[i];
        atomic_fetch_add(&storm->launched[i], launched[i]);
    }
    member->tally = tally;
}

static bool run_launchstorm(const struct args *args, struct reply *reply)
{
    struct storm storm = { .method = find_launch_method(args->text[2], reply) };
    for (int i = 0; i < STORM_KERNELS; i++) {
        storm.launches[i] = (struct launch){ DEFAULT_SHAPE };
        if (!storm.method || !kernel_named(builtin_kernels[i], &storm.launches[i].kernel, reply))
            return false;
    }
    struct member each = { .body = storm_body, .count = args->number[1], .shared = &storm };
    struct tally total = run_crew(args->number[0], each);
    reply_add(reply, "launches=%lu", total.launches);
    for (int i = 0; i < STORM_KERNELS; i++)
        reply_add(reply, " %s=%lu", builtin_kernels[i], storm.launched[i]);
    reply_failures(reply, &total);
    return true;
}

CALL_SITE static bool run_timelaunch(const struct args *args, struct reply *reply)
{
    struct launch launch = { DEFAULT_SHAPE };
    const struct launch_method *method = find_launch_method(args->text[1], reply);
    if (!method || !kernel_named(builtin_kernels[0], &launch.kernel, reply))
        return false;
    struct tally tally = { 0 };
    uint64_t start = now_ns();
    make_launches(&tally, method, &launch, args->number[0], false);
    reply_add(reply, "launches=%lu ns=%lu", tally.launches, now_ns() - start);
    return reply_done(reply, &tally);
}

const struct command launch_commands[] = {
    { "launch <kernel|all> [COUNT] [stream=] [via=] [grid=] [block=]", NEEDS_API, run_launch },
    { "launchstorm THREADS COUNT [via=]", NEEDS_API, run_launchstorm },
    { "timelaunch COUNT [via=]", NEEDS_API, run_timelaunch },
    { .usage = NULL },
};
