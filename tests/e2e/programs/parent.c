/*
 * Runs programs one after the other and says whether they were ever stopped. For each line
 * `run PROGRAM INPUT`, PROGRAM is run with the file INPUT as its input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static sigset_t news;

static void become(const char *program, const char *input)
{
    int in = open(input, O_RDONLY), out = open("/dev/null", O_WRONLY);
    if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0)
        _exit(126);
    sigprocmask(SIG_UNBLOCK, &news, NULL);
    execl(program, program, NULL);
    _exit(127);
}

/* The first signal about the child tells. It stays pending, and meanwhile others are dropped: it is
 * about the exit only if there was no stop, however short. */
static bool first_news_are_of_a_stop(void)
{
    siginfo_t about;
    while (sigwaitinfo(&news, &about) < 0)
        if (errno != EINTR)
            abort();
    return about.si_code != CLD_EXITED && about.si_code != CLD_KILLED &&
           about.si_code != CLD_DUMPED;
}

static void run(const char *program, const char *input)
{
    struct timespec at_once = { 0 };
    int status = 0;
    pid_t child = fork();
    if (child < 0)
        abort();
    if (child == 0)
        become(program, input);
    bool stopped = first_news_are_of_a_stop();
    while (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status))
        stopped = true;
    while (sigtimedwait(&news, NULL, &at_once) > 0)
        continue;
    printf("ok pid=%d status=%d stopped=%d\n", child, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           stopped);
    fflush(stdout);
}

int main(void)
{
    char line[8192], program[4096], input[4096];
    sigemptyset(&news);
    sigaddset(&news, SIGCHLD);
    sigprocmask(SIG_BLOCK, &news, NULL);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "run %4095s %4095s", program, input) != 2)
            return 2;
        run(program, input);
    }
    return 0;
}
