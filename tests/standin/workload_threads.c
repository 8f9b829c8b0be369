/* Named worker threads that run commands, so that a test decides which thread
 * makes which call. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workload.h"

#define NAME_BYTES 16 /* the kernel's limit for a thread's name, with its NUL */

/* Only the main thread makes and ends workers, and it waits for each command:
 * a worker is idle whenever the list is touched. */
struct worker {
    struct worker *next;
    char name[NAME_BYTES];
    pthread_t thread;
    pid_t tid;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { STARTING, IDLE, WORKING, ENDING } state; /* under `lock` */
    char *line;
    struct reply *reply;
    bool ok;
};

static struct worker *workers;

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    pthread_setname_np(pthread_self(), worker->name);
    if (api.enter_thread)
        api.enter_thread();
    pthread_mutex_lock(&worker->lock);
    worker->tid = (pid_t)syscall(SYS_gettid);
    worker->state = IDLE;
    pthread_cond_broadcast(&worker->changed);
    for (;;) {
        while (worker->state == IDLE)
            pthread_cond_wait(&worker->changed, &worker->lock);
        if (worker->state == ENDING)
            break;
        worker->ok = run_line_quietly(worker->line, worker->reply, true);
        worker->state = IDLE;
        pthread_cond_broadcast(&worker->changed);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

static struct worker **find(const char *name)
{
    struct worker **link = &workers;
    while (*link && strcmp((*link)->name, name))
        link = &(*link)->next;
    return link;
}

bool run_on_worker(const char *name, char *line, struct reply *reply)
{
    struct worker *worker = *find(name);
    if (!worker)
        return reply_no(reply, "no thread %s", name);
    pthread_mutex_lock(&worker->lock);
    worker->line = line;
    worker->reply = reply;
    worker->state = WORKING;
    pthread_cond_broadcast(&worker->changed);
    while (worker->state == WORKING)
        pthread_cond_wait(&worker->changed, &worker->lock);
    pthread_mutex_unlock(&worker->lock);
    return worker->ok;
}

void workers_forget(void)
{
    workers = NULL;
}

static bool run_thread(const struct args *args, struct reply *reply)
{
    const char *name = args->text[0];
    if (strlen(name) >= NAME_BYTES || *find(name))
        return reply_no(reply, "%s: the name is taken or longer than %d", name, NAME_BYTES - 1);
    struct worker *worker = calloc(1, sizeof *worker);
    strcpy(worker->name, name);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, NULL);
    int error = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (error) {
        free(worker);
        return reply_no(reply, "pthread_create: %s", strerror(error));
    }
    pthread_mutex_lock(&worker->lock);
    while (worker->state == STARTING)
        pthread_cond_wait(&worker->changed, &worker->lock);
    pthread_mutex_unlock(&worker->lock);
    worker->next = workers;
    workers = worker;
    reply_add(reply, "%d", worker->tid);
    return true;
}

static bool run_join(const struct args *args, struct reply *reply)
{
    struct worker **link = find(args->text[0]);
    struct worker *worker = *link;
    if (!worker)
        return reply_no(reply, "no thread %s", args->text[0]);
    *link = worker->next;
    pthread_mutex_lock(&worker->lock);
    worker->state = ENDING;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    free(worker);
    return true;
}

const struct command thread_commands[] = {
    { "thread <name>", ON_MAIN, run_thread },
    { "join <name>", ON_MAIN, run_join },
    { .usage = NULL },
};
