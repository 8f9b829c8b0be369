/* Commands about the process: children, exec, ways to die, and the stand-in
 * driver's hooks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "workload.h"

/* The hooks are found when they are used: a program on the runtime is not
 * linked with the driver. */
static void *standin_symbol(const char *name, struct reply *reply)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol)
        reply_add(reply, "%s", dlerror());
    return symbol;
}

static bool run_fail(const struct args *args, struct reply *reply)
{
    __typeof__(&standin_fail) arm;
    *(void **)&arm = standin_symbol("standin_fail", reply);
    if (!arm)
        return false;
    return !arm(args->text[0], (int)args->number[1], (int)args->number[2]) ||
           reply_no(reply, "%s: the stand-in has no room for it", args->text[0]);
}

/* Leaves an allocation by longjmp, from inside the driver: its return is never
 * seen by a probe that waits for it. */
CALL_SITE static bool jump_out_of_alloc(void (*arm)(jmp_buf *))
{
    jmp_buf target;
    if (setjmp(target))
        return true;
    arm(&target);
    struct tally tally = { 0 };
    void *address = tally_alloc(&tally, 4096);
    arm(NULL);
    if (address)
        tally_free(&tally, address, 4096);
    truth_add(&tally);
    return false;
}

static bool run_longjmp(const struct args *args, struct reply *reply)
{
    __typeof__(&standin_longjmp_arm) arm;
    *(void **)&arm = standin_symbol("standin_longjmp_arm", reply);
    uint64_t jumped = 0;
    while (arm && jumped < args->number[0] && jump_out_of_alloc(arm))
        jumped++;
    if (arm)
        reply_add(reply, "jumped=%lu", jumped);
    return arm && jumped == args->number[0];
}

/* Standard output is for one reply a command: a child writes to standard error
 * and finds its input empty. */
static void redirect_child(void)
{
    int null = open("/dev/null", O_RDONLY);
    if (null == -1 || dup2(null, STDIN_FILENO) == -1 || dup2(STDERR_FILENO, STDOUT_FILENO) == -1)
        _exit(126);
}

static bool reply_child(pid_t child, struct reply *reply)
{
    int status;
    if (child == -1)
        return reply_no(reply, "fork: %s", strerror(errno));
    while (waitpid(child, &status, 0) == -1 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status))
        reply_add(reply, "%d signal=%d", child, WTERMSIG(status));
    else
        reply_add(reply, "%d status=%d", child, WEXITSTATUS(status));
    return true;
}

/* A child starts with nothing: its parent's blocks are not its to free, and worker threads do
 * not survive a fork. Its totals are in shared memory, where they outlive even a child that is
 * killed. */
static bool run_fork(const struct args *args, struct reply *reply)
{
    void *shared =
        mmap(NULL, truth_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return reply_no(reply, "mmap: %s", strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        redirect_child();
        truth_restart_in(shared);
        slots_forget();
        vmm_forget();
        workers_forget();
        run_sequence(strdup(args->rest), '|');
        _exit(exit_code);
    }
    bool ok = reply_child(child, reply);
    char text[TRUTH_TEXT_BYTES];
    if (ok)
        reply_add(reply, " %s", truth_text_of(shared, text, sizeof text));
    munmap(shared, truth_size());
    return ok;
}

static bool run_forkexec(const struct args *args, struct reply *reply)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        redirect_child();
        execv(args->word[0], args->word);
        _exit(127);
    }
    return reply_child(child, reply);
}

/* Replies only when it fails; else the new program's first line follows. */
static bool run_exec(const struct args *args, struct reply *reply)
{
    fflush(NULL);
    execv(args->word[0], args->word);
    return reply_no(reply, "%s: %s", args->word[0], strerror(errno));
}

static bool run_abort(const struct args *args, struct reply *reply)
{
    (void)args, (void)reply;
    abort();
}

/* Without what runs at an ordinary exit. */
static bool run_quit(const struct args *args, struct reply *reply)
{
    (void)args, (void)reply;
    _exit(0);
}

static bool run_kill9(const struct args *args, struct reply *reply)
{
    (void)args, (void)reply;
    raise(SIGKILL);
    return true;
}

static bool run_sleep(const struct args *args, struct reply *reply)
{
    double seconds;
    if (!parse_double(args->text[0], 86400, &seconds, reply))
        return false;
    sleep_until_ns(now_ns() + (uint64_t)(seconds * 1e9));
    return true;
}

const struct command process_commands[] = {
    { "fail <function> TIMES ERROR", 0, run_fail },
    { "longjmp [COUNT]", NEEDS_API, run_longjmp },
    { "fork ...", 0, run_fork }, /* COMMAND [| COMMAND] ... */
    { "forkexec ...", 0, run_forkexec },
    { "exec ...", 0, run_exec },
    { "abort", 0, run_abort },
    { "quit", 0, run_quit },
    { "kill9", 0, run_kill9 },
    { "sleep <seconds>", 0, run_sleep },
    { .usage = NULL },
};
