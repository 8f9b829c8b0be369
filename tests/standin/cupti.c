/*
 * Stand-in libcupti: the asynchronous part of the Activity API, fed by what the
 * stand-in driver and runtime really do. STANDIN_CUPTI_VERSION says which
 * release it is, STANDIN_CUPTI_FAULTS how it misbehaves; see cupti_internal.h.
 *
 * There is one buffer at a time. It goes back when a record does not fit any
 * more, or when a flush asks for it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti_internal.h"

#define KERNEL_NS 1500
#define EXPORTED __attribute__((visibility("default")))

typedef void (*requested_function)(uint8_t **buffer, size_t *size, size_t *most);
typedef void (*completed_function)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                   size_t valid);
typedef void (*callback_function)(void *user, int domain, uint32_t cbid, const void *data);

static requested_function requested;
static completed_function completed;
static uint64_t (*clock_callback)(void);
static callback_function callback;
static void *callback_user;
static atomic_bool subscribed, listens_to_contexts;

static atomic_bool enabled[KIND_COUNT];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Under `lock`. */
static struct buffer {
    struct buffer *next;
    uint8_t *start;
    size_t size, used, last_record;
} current;
static unsigned long long records, buffers;
static unsigned int underway; /* in threads of their own */
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static size_t dropped;

static uint64_t now(void)
{
    if (clock_callback)
        return clock_callback();
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void *complete_in_thread(void *argument)
{
    struct buffer *buffer = argument;
    completed(NULL, 0, buffer->start, buffer->size, buffer->used);
    free(buffer);
    pthread_mutex_lock(&lock);
    underway--;
    pthread_cond_broadcast(&arrived);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void give_back(struct buffer *list)
{
    while (list) {
        struct buffer *next = list->next;
        pthread_t thread;
        pthread_mutex_lock(&lock);
        underway++;
        pthread_mutex_unlock(&lock);
        if (!faults.threads || pthread_create(&thread, NULL, complete_in_thread, list))
            complete_in_thread(list);
        else
            pthread_detach(thread);
        list = next;
    }
}

/* Unlinks the buffer and prepends it to `list`. */
static struct buffer *retire(struct buffer *list)
{
    if (!current.start)
        return list;
    struct buffer *buffer = malloc(sizeof *buffer);
    if (!buffer)
        abort();
    *buffer = current;
    buffer->next = list;
    if (faults.truncated && ++buffers % faults.truncated == 0 && buffer->used)
        buffer->used = buffer->last_record + 16;
    current = (struct buffer){ 0 };
    return buffer;
}

static struct buffer *append(const uint8_t *record, size_t bytes, struct buffer *list)
{
    if (current.start && current.used + bytes > current.size)
        list = retire(list);
    if (!current.start) {
        size_t most = 0;
        requested(&current.start, &current.size, &most);
        current.used = 0;
    }
    if (!current.start || bytes > current.size ||
        (faults.dropped && ++records % faults.dropped == 0)) {
        dropped++;
        return list;
    }
    memcpy(current.start + current.used, record, bytes);
    current.last_record = current.used;
    current.used += bytes;
    return list;
}

static void put(const uint8_t *record, size_t bytes)
{
    static unsigned long long written;
    struct buffer *list = NULL;
    pthread_mutex_lock(&lock);
    list = append(record, bytes, list);
    written++;
    if (faults.unknown && written % faults.unknown == 0) {
        uint8_t other[RECORD_MAX];
        list = append(other, record_write_extra(other, KIND_JIT, 0), list);
    }
    if (faults.invalid && written % faults.invalid == 0) {
        uint8_t none[40] = { 0 };
        list = append(none, sizeof none, list);
    }
    pthread_mutex_unlock(&lock);
    give_back(list);
}

static bool is_enabled(uint32_t kind)
{
    return atomic_load_explicit(&enabled[kind], memory_order_relaxed);
}

static void record(const struct activity *activity)
{
    uint32_t kind = activity->kind;
    if (kind == ACTIVITY_KERNEL && !is_enabled(kind))
        kind = KIND_SERIAL_KERNEL;
    if (!is_enabled(kind) ||
        (activity->graph && activity->kind == ACTIVITY_KERNEL && is_enabled(ACTIVITY_GRAPH)))
        return;
    uint64_t duration_ns = activity->duration_ns;
    if (activity->kind == ACTIVITY_KERNEL || activity->kind == ACTIVITY_GRAPH)
        duration_ns = KERNEL_NS;
    uint8_t bytes[RECORD_MAX];
    size_t size = record_write(bytes, activity, kind, activity->start_ns + duration_ns);
    if (size)
        put(bytes, size);
}

static void context_ends(uint32_t context)
{
    (void)context;
    if (atomic_load(&listens_to_contexts))
        callback(callback_user, 3, 2, NULL);
}

static const struct activity_listener listener = { now, record, context_ends };

static void attach_to_driver(int kind)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void (*attach)(const struct activity_listener *, int) = NULL;
    if (driver)
        *(void **)&attach = dlsym(driver, "standin_activity_attach");
    if (attach)
        attach(&listener, kind);
}

__attribute__((constructor)) static void setup(void)
{
    faults_setup();
}

EXPORTED CUptiResult cuptiGetVersion(uint32_t *version)
{
    static const uint32_t numbers[RELEASES] = { 18, 18, 22, 26, 130001, 130500 };
    *version = faults.strange_version ? 150000 : faults.old_version ? 12 : numbers[release];
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiSubscribe(void **subscriber, callback_function function, void *user)
{
    if (faults.not_initialized)
        return CUPTI_ERROR_NOT_INITIALIZED;
    if (faults.in_use || atomic_exchange(&subscribed, true))
        return release >= V12_4 ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                                : CUPTI_ERROR_MAX_LIMIT_REACHED;
    callback = function;
    callback_user = user;
    *subscriber = &subscribed;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiUnsubscribe(void *subscriber)
{
    if (subscriber != &subscribed)
        return CUPTI_ERROR_INVALID_PARAMETER;
    atomic_store(&listens_to_contexts, false);
    atomic_store(&subscribed, false);
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiEnableCallback(uint32_t enable, void *subscriber, int domain,
                                         uint32_t cbid)
{
    if (subscriber != &subscribed)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (domain == 3 && cbid == 2)
        atomic_store(&listens_to_contexts, enable != 0);
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityRegisterCallbacks(requested_function request,
                                                    completed_function complete)
{
    if (faults.not_initialized)
        return CUPTI_ERROR_NOT_INITIALIZED;
    if (faults.no_callbacks)
        return CUPTI_ERROR_INVALID_OPERATION;
    requested = request;
    completed = complete;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityRegisterTimestampCallback(uint64_t (*function)(void))
{
    clock_callback = function;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityEnable(int kind)
{
    if (faults.not_initialized)
        return CUPTI_ERROR_NOT_INITIALIZED;
    if (kind <= 0 || kind >= KIND_COUNT)
        return CUPTI_ERROR_INVALID_KIND;
    if (faults.refused == (unsigned int)kind)
        return CUPTI_ERROR_NOT_SUPPORTED;
    atomic_store(&enabled[kind], true);
    attach_to_driver(kind);
    if (faults.extras && (kind == KIND_NAME || kind == KIND_MARKER || kind == KIND_OVERHEAD ||
                          kind == KIND_EXTERNAL_CORRELATION)) {
        uint8_t bytes[RECORD_MAX];
        put(bytes, record_write_extra(bytes, (uint32_t)kind, now()));
    }
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityDisable(int kind)
{
    if (kind <= 0 || kind >= KIND_COUNT)
        return CUPTI_ERROR_INVALID_KIND;
    atomic_store(&enabled[kind], false);
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    if (!completed)
        return CUPTI_ERROR_INVALID_OPERATION;
    if (faults.held && !flag)
        return CUPTI_SUCCESS;
    pthread_mutex_lock(&lock);
    struct buffer *list = current.used ? retire(NULL) : NULL;
    pthread_mutex_unlock(&lock);
    give_back(list);
    /* Flushed records have been delivered. */
    pthread_mutex_lock(&lock);
    while (underway)
        pthread_cond_wait(&arrived, &lock);
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityFlushPeriod(uint32_t period_ms)
{
    (void)period_ms;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    uint8_t *next = buffer;
    if (*record)
        next = *record + record_bytes(*record);
    if (!valid || next >= buffer + valid)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    if (!record_bytes(next))
        return CUPTI_ERROR_INVALID_KIND;
    *record = next;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream,
                                                       size_t *count)
{
    (void)context, (void)stream;
    pthread_mutex_lock(&lock);
    *count = dropped;
    dropped = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivitySetAttribute(int attribute, size_t *size, void *value)
{
    (void)attribute;
    return size && value ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

EXPORTED CUptiResult cuptiSetThreadIdType(int type)
{
    return type == 0 || type == 1 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

EXPORTED CUptiResult cuptiActivityEnableAllocationSource(uint8_t enable)
{
    (void)enable;
    return release >= V12_8 ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_SUPPORTED;
}

/* The function that NVTX would call, with one that fills its tables. */
EXPORTED int InitializeInjectionNvtx2(void *get_table)
{
    return get_table != NULL;
}

EXPORTED CUptiResult cuptiGetTimestamp(uint64_t *timestamp)
{
    *timestamp = now();
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiGetCallbackName(int domain, uint32_t cbid, const char **name)
{
    *name = cbid_name(domain == 1 ? ACTIVITY_DRIVER : ACTIVITY_RUNTIME, cbid);
    return *name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

EXPORTED CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
    switch (result) {
    case CUPTI_SUCCESS:
        *text = "CUPTI_SUCCESS";
        break;
    case CUPTI_ERROR_NOT_INITIALIZED:
        *text = "CUPTI_ERROR_NOT_INITIALIZED";
        break;
    case CUPTI_ERROR_NOT_SUPPORTED:
        *text = "CUPTI_ERROR_NOT_SUPPORTED";
        break;
    case CUPTI_ERROR_INVALID_OPERATION:
        *text = "CUPTI_ERROR_INVALID_OPERATION";
        break;
    default:
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    return CUPTI_SUCCESS;
}
