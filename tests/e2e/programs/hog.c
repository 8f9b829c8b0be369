/*
 * A user who wants everything: `hog UID WHAT COUNT`, started by root, becomes UID and says
 * "ready PID". At each line of input it takes COUNT of what it wants, says "made N" (calls that
 * succeeded) and keeps what it has taken; it ends with its input, or after two minutes. WHAT:
 *
 *     threads     threads that have made a call, and live
 *     processes   the same of processes
 *     calls       so many calls by ten threads at a time, each freed at once
 *     keep        allocations that are never freed, by two threads
 *     paths       processes that each allocate in so many places, by call paths of their own, and
 *                 free nothing
 *     jitted      one allocation by code that was made at run time, with a perf map of so many
 *                 functions with long names
 *     renames     its name, changed so often
 *     looks       processes with 1,000 mappings each that tell debuggers of libraries, of which
 *                 there are none, fifty times a second
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

int cudaMalloc(void **address, size_t size);
int cudaFree(void *address);

enum { SECONDS = 120, CALLERS = 10, KEEPERS = 2 };

static atomic_long made;
static long each;

static void allocate(void)
{
    void *address;
    made += cudaMalloc(&address, 512) == 0;
}

static void *call_and_wait(void *unused)
{
    allocate();
    for (;;)
        pause();
    return unused;
}

static void *call_and_free(void *unused)
{
    for (long i = 0; i < each; i++) {
        void *address;
        made += cudaMalloc(&address, 4096) == 0;
        made += cudaFree(address) == 0;
    }
    return unused;
}

static void *keep(void *unused)
{
    for (long i = 0; i < each; i++)
        allocate();
    return unused;
}

static pthread_t start(void *(*main)(void *))
{
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    if (pthread_create(&thread, &small, main, NULL))
        abort();
    return thread;
}

static void threads(long count)
{
    long before = made;
    for (long i = 0; i < count; i++)
        start(call_and_wait);
    while (made < before + count)
        usleep(1000);
}

/* They exit with their parent. */
static void processes(long count)
{
    int called[2];
    char byte = 0;
    if (pipe(called))
        abort();
    for (long i = 0; i < count; i++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(SECONDS);
            allocate();
            if (write(called[1], &byte, 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        made += read(called[0], &byte, 1) == 1;
    }
    close(called[0]);
    close(called[1]);
}

static void together(int count, void *(*main)(void *), long all)
{
    pthread_t all_threads[CALLERS];
    each = all / count;
    for (int i = 0; i < count; i++)
        all_threads[i] = start(main);
    for (int i = 0; i < count; i++)
        pthread_join(all_threads[i], NULL);
}

/* A bit of the number for each function on the call path. */
static void left(long path, int depth);
static void right(long path, int depth);

static void go_down(long path, int depth)
{
    if (!depth)
        allocate();
    else if (path & 1)
        left(path >> 1, depth - 1);
    else
        right(path >> 1, depth - 1);
}

static void left(long path, int depth)
{
    go_down(path, depth);
}

static void right(long path, int depth)
{
    go_down(path, depth);
}

static void paths(long count)
{
    enum { PROCESSES = 24, DEPTH = 20 };
    int called[2];
    long done;
    if (pipe(called))
        abort();
    for (int i = 0; i < PROCESSES; i++) {
        if (fork())
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(SECONDS);
        made = 0;
        for (long path = 0; path < count; path++)
            go_down(path, DEPTH);
        done = made;
        if (write(called[1], &done, sizeof done) != sizeof done)
            _exit(1);
        for (;;)
            pause();
    }
    for (int i = 0; i < PROCESSES && read(called[0], &done, sizeof done) == sizeof done; i++)
        made += done;
    close(called[0]);
    close(called[1]);
}

/* The first functions of the map are the code, which calls what it is given. */
static void jitted(long count)
{
    /* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
    static const unsigned char CODE[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
    static void (*code)(void (*)(void));
    enum { PAGE = 4096, SIZE = 16 };
    char path[64];
    if (!code) {
        int rights = PROT_READ | PROT_WRITE | PROT_EXEC;
        char *page = mmap(NULL, PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
        FILE *map = fopen(path, "w");
        if (page == MAP_FAILED || !map)
            abort();
        memcpy(page, CODE, sizeof CODE);
        for (long i = 0; i < count; i++)
            fprintf(map, "%lx %x made_at_run_time_%064ld\n", (long)page + i * SIZE, SIZE, i);
        fclose(map);
        *(void **)&code = page;
    }
    code(allocate);
}

static void tell_of_libraries(void)
{
    void (*tell)(void);
    *(void **)&tell = dlsym(RTLD_DEFAULT, "_dl_debug_state");
    for (;;) {
        tell();
        usleep(20000);
    }
}

static void looks(long count)
{
    enum { MAPPINGS = 1000, PAGE = 4096 };
    char *pages = mmap(NULL, 2 * MAPPINGS * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* Every other page is a mapping of its own. */
    for (long i = 0; i < MAPPINGS; i++)
        if (pages == MAP_FAILED || mprotect(pages + 2 * i * PAGE, PAGE, PROT_NONE))
            abort();
    allocate();
    for (long i = 0; i < count; i++) {
        if (fork())
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(SECONDS);
        tell_of_libraries();
    }
}

static void renames(long count)
{
    char name[32];
    if (!made)
        allocate();
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "hog%ld", i % 1000);
        prctl(PR_SET_NAME, name);
    }
    prctl(PR_SET_NAME, "hog");
}

int main(int count, char **arguments)
{
    char line[64];
    if (count != 4)
        return 2;
    uid_t uid = (uid_t)atoi(arguments[1]);
    const char *what = arguments[2];
    long number = atol(arguments[3]);
    struct rlimit memory = { 4UL << 30, 4UL << 30 };
    if (setgid(uid) || setuid(uid) || setrlimit(RLIMIT_AS, &memory))
        return 3;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(SECONDS);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(what, "threads"))
            threads(number);
        else if (!strcmp(what, "processes"))
            processes(number);
        else if (!strcmp(what, "calls"))
            together(CALLERS, call_and_free, number);
        else if (!strcmp(what, "keep"))
            together(KEEPERS, keep, number);
        else if (!strcmp(what, "paths"))
            paths(number);
        else if (!strcmp(what, "jitted"))
            jitted(number);
        else if (!strcmp(what, "renames"))
            renames(number);
        else if (!strcmp(what, "looks"))
            looks(number);
        else
            return 2;
        printf("made %ld\n", made);
        fflush(stdout);
    }
    return 0;
}
