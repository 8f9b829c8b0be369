/* Commands about the process: children, exec, ways to die, and the stand-in
 * driver's hooks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

static bool run_fail(struct words *words, struct reply *reply)
{
    uint64_t times, error;
    __typeof__(&standin_fail) arm;
    if (!parse_u64(words->word[2], INT32_MAX, &times, reply) ||
        !parse_u64(words->word[3], INT32_MAX, &error, reply))
        return false;
    *(void **)&arm = standin_symbol("standin_fail", reply);
    if (!arm)
        return false;
    if (arm(words->word[1], (int)times, (int)error)) {
        reply_add(reply, "%s: the stand-in has no room for it", words->word[1]);
        return false;
    }
    return true;
}

/* The stand-in's own call counts, as a tracer should see them; the workload's count could share a
 * mistake with the workload. */
static bool run_calls(struct words *words, struct reply *reply)
{
    __typeof__(&standin_calls) calls;
    *(void **)&calls = standin_symbol("standin_calls", reply);
    if (!calls)
        return false;
    for (int i = 1; i < words->count; i++) {
        long count = calls(words->word[i]);
        if (count < 0) {
            reply_add(reply, "calls are counted with STANDIN_COUNT_CALLS=1 only");
            return false;
        }
        reply_add(reply, "%s%s=%ld", i > 1 ? " " : "", words->word[i], count);
    }
    return true;
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

static bool run_longjmp(struct words *words, struct reply *reply)
{
    uint64_t times = 1;
    __typeof__(&standin_longjmp_arm) arm;
    if (!parse_optional(words, 1, UINT32_MAX, &times, reply))
        return false;
    *(void **)&arm = standin_symbol("standin_longjmp_arm", reply);
    if (!arm)
        return false;
    uint64_t jumped = 0;
    while (jumped < times && jump_out_of_alloc(arm))
        jumped++;
    reply_add(reply, "jumped=%lu", jumped);
    return jumped == times;
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
    if (child == -1) {
        reply_add(reply, "fork: %s", strerror(errno));
        return false;
    }
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
static bool run_fork(struct words *words, struct reply *reply)
{
    void *shared =
        mmap(NULL, truth_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        reply_add(reply, "mmap: %s", strerror(errno));
        return false;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        redirect_child();
        truth_restart_in(shared);
        slots_forget();
        kslots_forget();
        vmm_forget();
        workers_forget();
        run_sequence(words->rest, '|');
        _exit(exit_code);
    }
    bool ok = reply_child(child, reply);
    char text[TRUTH_TEXT_BYTES];
    if (ok)
        reply_add(reply, " %s", truth_text_of(shared, text, sizeof text));
    munmap(shared, truth_size());
    return ok;
}

static bool run_forkexec(struct words *words, struct reply *reply)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        redirect_child();
        execv(words->word[1], words->word + 1);
        _exit(127);
    }
    return reply_child(child, reply);
}

/* Replies only when it fails; else the new program's first line follows. */
static bool run_exec(struct words *words, struct reply *reply)
{
    fflush(NULL);
    execv(words->word[1], words->word + 1);
    reply_add(reply, "%s: %s", words->word[1], strerror(errno));
    return false;
}

static bool run_abort(struct words *words, struct reply *reply)
{
    (void)words, (void)reply;
    abort();
}

static bool run_kill9(struct words *words, struct reply *reply)
{
    (void)words, (void)reply;
    raise(SIGKILL);
    return true;
}

static bool run_sleep(struct words *words, struct reply *reply)
{
    double seconds;
    if (!parse_double(words->word[1], 86400, &seconds, reply))
        return false;
    sleep_until_ns(now_ns() + (uint64_t)(seconds * 1e9));
    return true;
}

const struct command process_commands[] = {
    { "fail", "fail FUNCTION TIMES ERROR", 3, 3, 0, run_fail },
    { "calls", "calls FUNCTION ...", 1, MAX_WORDS - 1, 0, run_calls },
    { "longjmp", "longjmp [COUNT]", 0, 1, NEEDS_API, run_longjmp },
    { "fork", "fork COMMAND [| COMMAND ...]", 1, INT_MAX, 0, run_fork },
    { "forkexec", "forkexec PATH [ARGUMENT ...]", 1, MAX_WORDS - 1, 0, run_forkexec },
    { "exec", "exec PATH [ARGUMENT ...]", 1, MAX_WORDS - 1, 0, run_exec },
    { "abort", "abort", 0, 0, 0, run_abort },
    { "kill9", "kill9", 0, 0, 0, run_kill9 },
    { "sleep", "sleep SECONDS", 1, 1, 0, run_sleep },
    { .name = NULL },
};
