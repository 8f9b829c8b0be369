/*
 * Leaves calls in every way there is, and allocates after it: argument 1 says how.
 * Prints what became of it.
 */
#include "hooked.h"

#include <pthread.h>
#include <signal.h>
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

/* With `how` in the middle of it. */
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

static void cancel_thread()
{
    pthread_exit(nullptr);
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
        /* It returns from the call that its parent had entered, and goes on. */
        hook = nullptr;
        return;
    }
    waitpid(child, nullptr, 0);
}

static void die()
{
    kill(getpid(), SIGKILL);
}

static void *left_thread(void *how)
{
    allocate(100, 1);
    allocate_with(reinterpret_cast<void (*)()>(how), 1000);
    printf("returned\n");
    return nullptr;
}

/* On a thread that leaves by it; afterwards on others, which may have its id. */
static void on_threads(void (*how)())
{
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, left_thread, reinterpret_cast<void *>(how));
        pthread_join(thread, nullptr);
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
    allocate(10, 2);
    if (!strcmp(how, "catch"))
        for (int i = 0; i < 3; i++)
            allocate_with(throw_and_catch, 1000);
    else if (!strcmp(how, "throw"))
        printf("caught %d\n", throw_through());
    else if (!strcmp(how, "exit"))
        on_threads(exit_thread);
    else if (!strcmp(how, "cancel"))
        on_threads(cancel_thread);
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
