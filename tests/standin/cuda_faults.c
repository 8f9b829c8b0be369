/* Failure injection: which function fails, how often, with which error. */
#include <pthread.h>
#include <string.h>

#include "cuda_internal.h"

#define MAX_FAULTS 64
#define NAME_BYTES 64

struct fault {
    char function[NAME_BYTES];
    int times;
    int error;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fault faults[MAX_FAULTS]; /* under `lock`; times == 0: unused */
/* Failures left over all functions: the only thing that a call reads when there is none. */
static atomic_int armed;

int standin_fail(const char *function, int times, int error)
{
    if (strlen(function) >= NAME_BYTES || times < 0)
        return -1;
    int result = -1;
    struct fault *row = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_FAULTS; i++) {
        if (faults[i].times && !strcmp(faults[i].function, function)) {
            row = &faults[i];
            break;
        }
        if (!faults[i].times && !row)
            row = &faults[i];
    }
    if (row) {
        atomic_fetch_add(&armed, times - row->times);
        strcpy(row->function, function);
        row->times = times;
        row->error = error;
        result = 0;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int standin_take_failure(const char *function)
{
    if (atomic_load_explicit(&armed, memory_order_relaxed) == 0)
        return 0;
    int error = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_FAULTS; i++) {
        if (faults[i].times && !strcmp(faults[i].function, function)) {
            faults[i].times--;
            atomic_fetch_sub(&armed, 1);
            error = faults[i].error;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return error;
}
