/* Commands by driver functions of CUDA 12.4 to 13.3, for every backend: green contexts, captures
 * for graphics, logical endpoints. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "workload.h"

struct green {
    bool live;
    int device;
    CUgreenCtx green;
};

static struct list greens = LIST(struct green, "green context");

/* The driver's function of this name. */
#define DRIVER(symbol) ((__typeof__(&symbol))find(#symbol))

static void *find(const char *symbol)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), symbol);
}

/* Makes the context of a green one current. Its memory is that of the device's primary context. */
static bool set(const struct green *made, struct reply *reply)
{
    CUcontext context;
    if (!reply_error(reply, DRIVER(cuCtxFromGreenCtx)(&context, made->green)) ||
        !reply_error(reply, DRIVER(cuCtxSetCurrent)(context)))
        return false;
    thread_device = made->device;
    thread_context = NULL;
    return true;
}

CALL_SITE static bool run_green(const struct args *args, struct reply *reply)
{
    const char *what = args->text[0];
    int resources;
    if (!strcmp(what, "create")) {
        struct green made = { .live = true, .device = (int)args->number[1] };
        int error =
            DRIVER(cuGreenCtxCreate)(&made.green, (CUdevResourceDesc)&resources, made.device, 1);
        if (!reply_error(reply, error))
            return false;
        reply_add(reply, "%zu", list_add(&greens, &made));
        return true;
    }
    struct green *made = list_named(&greens, args->number[1], reply);
    if (!made)
        return false;
    if (!strcmp(what, "set"))
        return set(made, reply);
    made->live = false;
    return reply_error(reply, DRIVER(cuGreenCtxDestroy)(made->green)) &&
           reply_error(reply, api.set_device(thread_device));
}

/* A capture into a command list of graphics. */
static bool run_cig(const struct args *args, struct reply *reply)
{
    void *stream;
    int params;
    if (!stream_named(args->text[1], &stream, NULL, reply))
        return false;
    bool begins = !strcmp(args->text[0], "begin");
    stream_captured(args->text[1], begins);
    return reply_error(reply, begins ? DRIVER(cuStreamBeginCaptureToCig)(
                                           stream, (CUstreamCigCaptureParams *)&params)
                                     : DRIVER(cuStreamEndCaptureToCig)(stream));
}

CALL_SITE static bool run_endpoint(const struct args *args, struct reply *reply)
{
    CUlogicalEndpointId id = (CUlogicalEndpointId)args->number[1];
    int properties;
    return reply_error(
        reply, !strcmp(args->text[0], "create")
                   ? DRIVER(cuLogicalEndpointCreate)(id, (const CUlogicalEndpointProp *)&properties)
                   : DRIVER(cuLogicalEndpointDestroy)(id));
}

const struct command cuda13_commands[] = {
    { "green <create|set|destroy> [CONTEXT|DEVICE]", NEEDS_API, run_green },
    { "cig <begin|end> <stream>", NEEDS_API, run_cig },
    { "endpoint <create|destroy> NUMBER", NEEDS_API, run_endpoint },
    { .usage = NULL },
};
