/* Other stacks than the thread's, deep stacks, and anonymous code. */
#define _GNU_SOURCE
#include "stop.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#define KEEP __attribute__((noipa))

volatile int sink;
static ucontext_t back, coroutine;

KEEP static void bottom(void) {
    stop_now();
    sink++;
}

KEEP static int recurse(int depth) {
    if (depth == 0) {
        bottom();
        return sink;
    }
    return recurse(depth - 1) + sink;
}

KEEP static void in_coroutine(void) {
    bottom();
    sink++;
}

KEEP static void handler(int number) {
    bottom();
    sink = number;
}

KEEP static void interrupted(void) {
    __asm__ volatile("ud2");
    sink++;
}

KEEP static void *in_thread(void *argument) {
    bottom();
    sink++;
    return argument;
}

static void handle(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags | SA_RESETHAND};
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
    sigaction(SIGILL, &action, NULL);
    interrupted();
}

typedef void called(void);
/* The function to call is the fourth argument, as in CPython. */
typedef void trampoline(long, long, long, called *);

static trampoline *inner_trampoline;

KEEP static void between(void) {
    inner_trampoline(0, 0, 0, bottom);
    sink++;
}

/* Two trampolines of Python functions like CPython's, in anonymous memory. */
KEEP static void jit(int has_frame_pointer) {
    /* sub $8,%rsp; call *%rcx; add $8,%rsp; ret */
    static const unsigned char bare[16] = {0x48, 0x83, 0xec, 8,    0xff, 0xd1,
                                           0x48, 0x83, 0xc4, 8, 0xc3};
    /* endbr64; push %rbp; mov %rsp,%rbp; call *%rcx; pop %rbp; ret */
    static const unsigned char framed[16] = {0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89,
                                             0xe5, 0xff, 0xd1, 0x5d, 0xc3};
    unsigned char *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int at = 0; at < 4096; at += 16)
        memcpy(page + at, has_frame_pointer ? framed : bare, 16);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    fprintf(map, "%lx b py::train:/x/train.py\n", (unsigned long)page + 32);
    fprintf(map, "%lx b py::Step.run:/x/step.py\n", (unsigned long)page + 64);
    fclose(map);
    inner_trampoline = (trampoline *)(page + 64);
    ((trampoline *)(page + 32))(0, 0, 0, between);
    unlink(path);
    sink++;
}

int main(int argc, char **argv) {
    const char *what = argv[argc - 1];
    if (!strcmp(what, "altstack")) {
        handle(SA_ONSTACK);
    } else if (!strcmp(what, "signal")) {
        handle(0);
    } else if (!strcmp(what, "coroutine")) {
        getcontext(&coroutine);
        coroutine.uc_stack.ss_sp = malloc(1 << 16);
        coroutine.uc_stack.ss_size = 1 << 16;
        coroutine.uc_link = &back;
        makecontext(&coroutine, in_coroutine, 0);
        swapcontext(&back, &coroutine);
    } else if (!strcmp(what, "thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, in_thread, NULL);
        pthread_join(thread, NULL);
    } else if (!strncmp(what, "jit", 3)) {
        jit(!strcmp(what, "jit-framed"));
    } else {
        sink = recurse(atoi(what));
    }
    sink++;
    return 0;
}
