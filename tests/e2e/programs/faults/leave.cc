/*
 * Leaves calls in every way there is, and allocates after it: argument 1 says how.
 * Prints what became of it.
 */
#include "hooked.h"

#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdexcept>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *own_path;

static void allocate(size_t bytes, int count)
{
    void *address;
    for (int i = 0; i < count; i++)
        cudaMalloc(&address, bytes);
}

/* With `how` run in the middle of the call. */
static void allocate_with(void (*how)(), size_t bytes)
{
    hook = how;
    allocate(bytes, 1);
    hook = nullptr;
}

static void throw_and_catch()
{
    try {
        throw std::runtime_error("inside");
    } catch (const std::exception &) {
    }
}

static void throw_it()
{
    throw std::runtime_error("outside");
}

static void exit_thread()
{
    syscall(SYS_exit, 0);
}

static void end_thread()
{
    pthread_exit(nullptr);
}

static sem_t in_the_call;

/* Another thread cancels it. */
static void be_cancelled()
{
    sem_post(&in_the_call);
    for (;;)
        pause();
}

static void exec_self()
{
    execl(own_path, own_path, "after", nullptr);
    _exit(127);
}

static void fork_here()
{
    pid_t child = fork();
    if (child == 0) {
        /* The child returns from the call that its parent had entered, and goes on. */
        hook = nullptr;
        return;
    }
    waitpid(child, nullptr, 0);
}

static void die()
{
    kill(getpid(), SIGKILL);
}

static pid_t left_tid;

static void *left_thread(void *how)
{
    left_tid = gettid();
    allocate(100, 1);
    allocate_with(reinterpret_cast<void (*)()>(how), 1000);
    printf("returned\n");
    return nullptr;
}

/*
 * Starts a thread that has the id `tid`, on the stack and with the thread-local storage
 * of the caller, which goes on when it has ended. The system call is made in place: a
 * function would return twice on the one stack.
 */
static long start_thread_as(pid_t tid)
{
    struct clone_args arguments = {};
    arguments.flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                      CLONE_SYSVSEM | CLONE_VFORK;
    arguments.set_tid = reinterpret_cast<uintptr_t>(&tid);
    arguments.set_tid_size = 1;
#if defined(__x86_64__)
    long result = SYS_clone3;
    asm volatile("syscall"
                 : "+a"(result)
                 : "D"(&arguments), "S"(sizeof arguments)
                 : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long result asm("x0") = reinterpret_cast<long>(&arguments);
    register long size asm("x1") = sizeof arguments;
    register long number asm("x8") = SYS_clone3;
    asm volatile("svc #0" : "+r"(result) : "r"(size), "r"(number) : "memory");
#endif
    if (result == 0) {
        allocate(200, 1);
        printf("%s id again\n", gettid() == tid ? "its" : "another");
        syscall(SYS_exit, 0);
    }
    return result;
}

/* On a thread that exits within the call; afterwards on one with the same TID. */
static void on_threads(void (*how)())
{
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        long next;
        pthread_create(&thread, nullptr, left_thread, reinterpret_cast<void *>(how));
        if (how == be_cancelled) {
            sem_wait(&in_the_call);
            pthread_cancel(thread);
        }
        pthread_join(thread, nullptr);
        /* The exiting thread keeps its TID for a little longer. */
        do
            next = start_thread_as(left_tid);
        while (next == -EEXIST);
        if (next != left_tid)
            printf("error %ld\n", -next);
    }
}

static int throw_through()
{
    int caught = 0;
    for (int i = 0; i < 3; i++) {
        try {
            allocate_with(throw_it, 1000);
        } catch (const std::exception &) {
            hook = nullptr;
            caught++;
        }
    }
    return caught;
}

int main(int, char **arguments)
{
    const char *how = arguments[1];
    own_path = arguments[0];
    setvbuf(stdout, nullptr, _IOLBF, 0);
    sem_init(&in_the_call, 0, 0);
    allocate(10, 2);
    if (!strcmp(how, "catch"))
        for (int i = 0; i < 3; i++)
            allocate_with(throw_and_catch, 1000);
    else if (!strcmp(how, "throw"))
        printf("caught %d\n", throw_through());
    else if (!strcmp(how, "exit"))
        on_threads(exit_thread);
    else if (!strcmp(how, "end"))
        on_threads(end_thread);
    else if (!strcmp(how, "cancel"))
        on_threads(be_cancelled);
    else if (!strcmp(how, "fork"))
        allocate_with(fork_here, 1000);
    else if (!strcmp(how, "exec"))
        allocate_with(exec_self, 1000);
    else if (!strcmp(how, "die"))
        allocate_with(die, 1000);
    allocate(20, 2);
    printf("end %s\n", how);
    return 0;
}
