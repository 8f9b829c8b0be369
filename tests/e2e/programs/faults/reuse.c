/*
 * Runs a program several times, one after the other and all with the same process id:
 * `reuse TIMES PROGRAM [ARGUMENT ...]`. Ends with the status of the last.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* With the PID `wanted`, or any if that is 0. */
static pid_t start(pid_t wanted, char **command)
{
    struct clone_args arguments = { .exit_signal = SIGCHLD };
    if (wanted) {
        arguments.set_tid = (uintptr_t)&wanted;
        arguments.set_tid_size = 1;
    }
    pid_t child = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0) {
        execv(command[0], command);
        _exit(127);
    }
    return child;
}

int main(int count, char **arguments)
{
    int status = 0;
    pid_t pid = 0;
    if (count < 3)
        return 2;
    for (int i = 0; i < atoi(arguments[1]); i++) {
        pid = start(pid, arguments + 2);
        if (pid < 0) {
            perror("reuse: clone3");
            return 1;
        }
        while (waitpid(pid, &status, 0) == -1 && errno == EINTR)
            continue;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
