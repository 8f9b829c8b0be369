/* Failure injection: which function fails, how often, with which error. And the call counts, for
 * which every call passes here too. */
#include <pthread.h>
#include <string.h>

#include "cuda_internal.h"

#define MAX_FAULTS 64
#define NAME_BYTES 64
#define MAX_FUNCTIONS 1024 /* a power of two, and more than both libraries export */

struct fault {
    char function[NAME_BYTES];
    int times;
    int error;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fault faults[MAX_FAULTS]; /* under `lock`; times == 0: unused */
static bool counting;
static struct {
    char function[NAME_BYTES];
    long long calls;
} counts[MAX_FUNCTIONS]; /* under `lock`; open addressing */
/* Failures left over all functions, and 1 while calls are counted: the only thing that a call reads
 * when there is nothing to do. */
static atomic_int armed;

static long long *count_of(const char *function)
{
    unsigned int place = 5381;
    for (const char *c = function; *c; c++)
        place = place * 33 + (unsigned char)*c;
    place %= MAX_FUNCTIONS;
    while (*counts[place].function && strcmp(counts[place].function, function))
        place = (place + 1) % MAX_FUNCTIONS;
    strncpy(counts[place].function, function, NAME_BYTES - 1);
    return &counts[place].calls;
}

void calls_count(void)
{
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&armed, !counting);
    counting = true;
    pthread_mutex_unlock(&lock);
}

long long standin_calls(const char *function)
{
    if (strlen(function) >= NAME_BYTES)
        return -1;
    pthread_mutex_lock(&lock);
    long long calls = counting ? *count_of(function) : -1;
    pthread_mutex_unlock(&lock);
    return calls;
}

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
    if (counting)
        ++*count_of(function);
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
