/* Stand-in libcuda: reporting of activity to a stand-in CUPTI. */
#define _GNU_SOURCE
#include "cuda_activity.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_internal.h"

_Atomic(const struct activity_listener *) activity_listener;

static atomic_uint last_correlation;
/* Of this thread's outermost call; 0 outside of calls. */
static _Thread_local uint32_t current_correlation;

void standin_activity_enter(struct activity_call *call, int layer, const char *function)
{
    const struct activity_listener *listener = atomic_load(&activity_listener);
    call->function = listener ? function : NULL;
    if (!listener)
        return;
    call->layer = layer;
    call->returned = 0;
    call->outer = current_correlation;
    /* As in CUPTI, a driver call within a runtime call has its correlation id. */
    call->correlation = call->outer ? call->outer : atomic_fetch_add(&last_correlation, 1) + 1;
    current_correlation = call->correlation;
    call->start_ns = listener->now();
}

void standin_activity_leave(struct activity_call *call)
{
    if (!call->function)
        return;
    current_correlation = call->outer;
    const struct activity_listener *listener = atomic_load(&activity_listener);
    if (!listener)
        return;
    struct activity activity = {
        .kind = call->layer,
        .correlation = call->correlation,
        .function = call->function,
        .tid = (uint32_t)gettid(),
        .result = call->returned,
        .start_ns = call->start_ns,
        .duration_ns = listener->now() - call->start_ns,
    };
    listener->record(&activity);
}

/* A call was left by longjmp. */
void activity_forget(void)
{
    current_correlation = 0;
}

void activity_tell(struct activity activity)
{
    const struct activity_listener *listener = atomic_load(&activity_listener);
    if (!listener)
        return;
    activity.correlation = current_correlation;
    if (!activity.start_ns)
        activity.start_ns = listener->now();
    listener->record(&activity);
}

/* Names are freed with their modules; CUPTI's records name kernels of unloaded ones. */
const char *activity_keep(const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct kept {
        struct kept *next;
        char text[];
    } * kept[256]; /* under `lock` */
    uint8_t place = 5;
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        place = (uint8_t)(place * 31 + (unsigned char)text[i]);
    pthread_mutex_lock(&lock);
    struct kept *found = kept[place];
    while (found && strcmp(found->text, text))
        found = found->next;
    if (!found) {
        found = malloc(sizeof *found + length + 1);
        if (!found)
            abort();
        memcpy(found->text, text, length + 1);
        found->next = kept[place];
        kept[place] = found;
    }
    pthread_mutex_unlock(&lock);
    return found->text;
}

void activity_tell_end(uint32_t context)
{
    const struct activity_listener *listener = atomic_load(&activity_listener);
    if (listener)
        listener->context_ends(context);
}

void standin_activity_attach(const struct activity_listener *listener, int kind)
{
    atomic_store(&activity_listener, listener);
    for (int device = 0; kind == ACTIVITY_DEVICE && device < settings.devices; device++)
        activity_tell((struct activity){ .kind = ACTIVITY_DEVICE, .device = (uint32_t)device });
    if (kind == ACTIVITY_CONTEXT)
        contexts_tell();
}

static void inject(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_NOW) : NULL;
    int (*initialize)(void) = NULL;
    if (library)
        *(void **)&initialize = dlsym(library, "InitializeInjection");
    if (initialize)
        initialize();
}

void activity_inject(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, inject);
}
