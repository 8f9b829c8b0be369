/* Commands that launch kernels: one after another, and in storms. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"
#include "workload_crew.h"
#include "workload_module.h"
#include "workload_options.h"

#define STORM_KERNELS 3

static const struct launch_method *find_launch_method(const char *via, struct reply *reply)
{
    const struct launch_method *method = api.work->launches;
    while (via && method->name && strcmp(method->name, via) && strcmp(method->function, via))
        method++;
    if (!method->name)
        reply_add(reply, "no way to launch via %s", via);
    return method->name ? method : NULL;
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
    reply_add(reply, "launches=%llu captured=%llu", (unsigned long long)tally->launches,
              (unsigned long long)tally->captured);
    if (launch->kernel && !api.work->handle(launch->kernel, &handle)) {
        reply_add(reply, " handle=0x%llx", (unsigned long long)(uintptr_t)handle);
        if (handle != launch->kernel)
            reply_add(reply, " host=0x%llx", (unsigned long long)(uintptr_t)launch->kernel);
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
    if (!kernel) {
        reply_add(reply, "no module");
        return false;
    }
    for (size_t i = 0; i < kernels; i++) {
        launch->kernel = kernel[i].kernel;
        make_launches(tally, method, launch, count, captured);
    }
    launch->kernel = NULL; /* there is no single handle */
    return true;
}

static bool run_launch(struct words *words, struct reply *reply)
{
    struct launch launch = { DEFAULT_SHAPE };
    uint64_t count = 1;
    const char *stream = NULL, *via = NULL;
    bool captured;
    const struct option options[] = {
        { NULL, OPTION_NUMBER, &count, MAX_CALLS },
        { "stream", OPTION_TEXT, &stream, 0 },
        { "via", OPTION_TEXT, &via, 0 },
        { "grid", OPTION_SIZE, launch.grid, 0 },
        { "block", OPTION_SIZE, launch.block, 0 },
    };
    if (!parse_options(words, 2, options, sizeof options / sizeof *options, reply) ||
        !stream_named(stream, &launch.stream, &captured, reply))
        return false;
    const struct launch_method *method = find_launch_method(via, reply);
    if (!method)
        return false;
    struct tally tally = { 0 };
    bool all = !strcmp(words->word[1], "all");
    if (all ? !launch_all(&tally, method, &launch, count, captured, reply)
            : !kernel_named(words->word[1], &launch.kernel, reply))
        return false;
    if (!all)
        make_launches(&tally, method, &launch, count, captured);
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

static bool storm_setup(struct storm *storm, const char *via, struct reply *reply)
{
    storm->method = find_launch_method(via, reply);
    if (!storm->method)
        return false;
    for (int i = 0; i < STORM_KERNELS; i++) {
        storm->launches[i] = (struct launch){ DEFAULT_SHAPE };
        if (!kernel_named(builtin_kernels[i], &storm->launches[i].kernel, reply))
            return false;
    }
    return true;
}

CALL_SITE static void storm_body(struct member *member)
{
    struct storm *storm = member->storm;
    struct tally tally = { 0 };
    uint64_t launched[STORM_KERNELS] = { 0 };
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

static bool run_launchstorm(struct words *words, struct reply *reply)
{
    uint64_t threads, count;
    const char *via = NULL;
    const struct option options[] = { { "via", OPTION_TEXT, &via, 0 } };
    struct storm storm = { .method = NULL };
    if (!parse_u64(words->word[1], MAX_THREADS, &threads, reply) ||
        !parse_u64(words->word[2], MAX_CALLS, &count, reply) ||
        !parse_options(words, 3, options, 1, reply) || !storm_setup(&storm, via, reply))
        return false;
    if (threads == 0) {
        reply_add(reply, "no threads");
        return false;
    }
    struct member *crew = calloc(threads, sizeof *crew);
    for (uint64_t i = 0; i < threads; i++)
        crew[i] =
            (struct member){ .body = storm_body, .count = count, .number = i, .storm = &storm };
    struct tally total = run_crew(crew, (unsigned int)threads);
    free(crew);
    reply_add(reply, "launches=%llu", (unsigned long long)total.launches);
    for (int i = 0; i < STORM_KERNELS; i++)
        reply_add(reply, " %s=%llu", builtin_kernels[i], (unsigned long long)storm.launched[i]);
    reply_failures(reply, &total);
    return true;
}

CALL_SITE static bool run_timelaunch(struct words *words, struct reply *reply)
{
    uint64_t count;
    const char *via = NULL;
    const struct option options[] = { { "via", OPTION_TEXT, &via, 0 } };
    struct launch launch = { DEFAULT_SHAPE };
    if (!parse_u64(words->word[1], MAX_CALLS, &count, reply) ||
        !parse_options(words, 2, options, 1, reply) ||
        !kernel_named(builtin_kernels[0], &launch.kernel, reply))
        return false;
    const struct launch_method *method = find_launch_method(via, reply);
    if (!method)
        return false;
    struct tally tally = { 0 };
    uint64_t start = now_ns();
    make_launches(&tally, method, &launch, count, false);
    uint64_t elapsed = now_ns() - start;
    truth_add(&tally);
    reply_add(reply, "launches=%llu ns=%llu", (unsigned long long)tally.launches,
              (unsigned long long)elapsed);
    reply_failures(reply, &tally);
    return true;
}

const struct command launch_commands[] = {
    { "launch",
      "launch KERNEL|all [COUNT] [stream=STREAM] [grid=X,Y,Z] [block=X,Y,Z] "
      "[via=kernel|ex|coop|nvcc|...]",
      1, 6, NEEDS_API, run_launch },
    { "launchstorm", "launchstorm THREADS COUNT [via=...]", 2, 3, NEEDS_API, run_launchstorm },
    { "timelaunch", "timelaunch COUNT [via=...]", 1, 2, NEEDS_API, run_timelaunch },
    { .name = NULL },
};
