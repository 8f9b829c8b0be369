/*
 * Runs a command on a terminal of its own, and closes the terminal when its input
 * ends: `terminal COMMAND [ARGUMENT ...]`. What the command writes to the terminal goes
 * to standard output; its standard error is ours. The last line is how it ended.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    char bytes[4096];
    int terminal, status, errors = dup(STDERR_FILENO);
    pid_t child = count > 1 ? forkpty(&terminal, NULL, NULL, NULL) : -1;
    if (child < 0)
        return 2;
    if (child == 0) {
        dup2(errors, STDERR_FILENO);
        execv(arguments[1], arguments + 1);
        _exit(127);
    }
    struct pollfd inputs[] = { { terminal, POLLIN, 0 }, { STDIN_FILENO, POLLIN, 0 } };
    while (poll(inputs, 2, -1) > 0 && !(inputs[0].revents & POLLERR)) {
        ssize_t length;
        if (inputs[0].revents & POLLIN) {
            length = read(terminal, bytes, sizeof bytes);
            if (length > 0 && write(STDOUT_FILENO, bytes, (size_t)length) != length)
                return 1;
        } else if (inputs[0].revents & POLLHUP) {
            break;
        }
        if (inputs[1].revents && read(STDIN_FILENO, bytes, sizeof bytes) <= 0)
            break;
    }
    close(terminal);
    waitpid(child, &status, 0);
    if (WIFEXITED(status))
        printf("\nstatus %d\n", WEXITSTATUS(status));
    else
        printf("\nsignal %d\n", WTERMSIG(status));
    return 0;
}
