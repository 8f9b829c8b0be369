/*
 * Allocates and frees memory of the stand-in CUDA at a steady rate, on several
 * threads and in several processes, and says exactly what it did: what the
 * programs of scripts/stress do on a GPU, without one. `stressor --help`.
 *
 * All processes write what they did into memory that they share with the first,
 * which speaks for all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cudart_abi.h"
#include "stressor.h"

static void die(const char *what)
{
    fprintf(stderr, "stressor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void stop(int signal)
{
    stopped = signal;
}

static void heed_signals(void)
{
    struct sigaction action = { .sa_handler = stop };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static sigset_t waited_for(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    return set;
}

/* Creates the context: a tracer that attaches now can learn the device. */
static void start_cuda(void)
{
    if (cudaFree(NULL)) {
        fputs("stressor: CUDA does not start\n", stderr);
        exit(1);
    }
}

/* From here on a tracer can attach. */
static void say_ready(const struct plan *plan)
{
    printf("ready %d\n", getpid());
    fflush(stdout);
    int byte = '\n';
    if (plan->wait)
        while ((byte = getchar()) != '\n' && byte != EOF)
            continue;
    if (byte == EOF && !stopped) {
        fputs("stressor: standard input ended before the line that --wait waits for\n", stderr);
        exit(1);
    }
}

static void child(const struct plan *plan, uint64_t number, struct process *process, pid_t parent)
{
    /* Children are killed with their parent. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sigset_t set = waited_for();
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    start_cuda();
    process_work(plan, number, process);
    _exit(0);
}

static void signal_all(const pid_t *children, uint64_t count, int signal)
{
    for (uint64_t i = 0; i < count; i++)
        if (children[i]) /* not reaped yet: the PID is still its own */
            kill(children[i], signal);
}

/* Removes the children that have exited from the list; returns how many. */
static uint64_t reap(pid_t *children, uint64_t count)
{
    uint64_t ended = 0;
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0; ended++)
        for (uint64_t i = 0; i < count; i++)
            if (children[i] == pid)
                children[i] = 0;
    return ended;
}

/* Runs the processes; returns the signal that ended them, or 0. This one stays
 * without CUDA: a context does not survive fork. */
static int run_processes(const struct plan *plan, void *all)
{
    static pid_t children[MAX_PROCS];
    sigset_t set = waited_for();
    pid_t parent = getpid();
    say_ready(plan);
    /* From here on signals are taken synchronously, below. */
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (uint64_t i = 0; i < plan->procs; i++) {
        children[i] = fork();
        if (children[i] == 0)
            child(plan, i, process_at(all, plan, i), parent);
        if (children[i] < 0) {
            children[i] = 0;
            signal_all(children, plan->procs, SIGKILL);
            die("fork");
        }
    }
    int ended_by = stopped;
    if (ended_by)
        signal_all(children, plan->procs, SIGTERM);
    for (uint64_t left = plan->procs; left;) {
        int signal = sigwaitinfo(&set, NULL);
        if (signal == SIGCHLD) {
            left -= reap(children, plan->procs);
        } else if (signal > 0) {
            ended_by = signal;
            signal_all(children, plan->procs, SIGTERM);
        }
    }
    return ended_by;
}

int main(int argc, char **argv)
{
    struct plan plan = plan_of(argc, argv);
    void *all = mmap(NULL, plan.procs * process_size(&plan), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        die("mmap");
    heed_signals();
    if (plan.procs > 1) {
        stopped = run_processes(&plan, all);
    } else {
        start_cuda();
        say_ready(&plan);
        process_work(&plan, 0, process_at(all, &plan, 0));
    }
    for (uint64_t i = 0; i < plan.procs; i++)
        if (!process_at(all, &plan, i)->complete) {
            fputs("stressor: a process ended before it said what it did\n", stderr);
            return 1;
        }
    statement_print(stdout, &plan, all, stopped);
    return fflush(stdout) ? 1 : 0;
}
