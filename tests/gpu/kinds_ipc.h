/*
 * A process that opens what this one exports. It is forked before CUDA runs,
 * and does what the bytes on its pipe say: `o` and 64 bytes, open them twice;
 * `c`, close once; `r`, reset the device, and close what is still open.
 */
#ifndef GPUPROBE_TESTS_GPU_KINDS_IPC_H
#define GPUPROBE_TESTS_GPU_KINDS_IPC_H

#include "kinds_api.h"
#include "kinds_truth.h"

#include <cstdio>
#include <cstdlib>

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

class Opener {
public:
    void fork_now(Truth &truth)
    {
        int to_child[2], to_parent[2];
        if (pipe(to_child) || pipe(to_parent))
            exit(1);
        pid_t parent = getpid();
        child_ = fork();
        if (child_ < 0)
            exit(1);
        if (!child_) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            close(to_child[1]);
            close(to_parent[0]);
            serve(truth, to_child[0], to_parent[1]);
        }
        close(to_child[0]);
        close(to_parent[1]);
        commands_ = to_child[1];
        replies_ = to_parent[0];
    }

    /* Returns once the other process has printed its line. */
    void tell(char command, const api::Ipc *ipc = nullptr)
    {
        char reply;
        bool sent = write(commands_, &command, 1) == 1;
        if (sent && ipc)
            sent = write(commands_, ipc, sizeof *ipc) == sizeof *ipc;
        if (!sent || read(replies_, &reply, 1) != 1) {
            fprintf(stderr, "kinds: the process that opens is gone\n");
            exit(1);
        }
    }

    bool is_there() const
    {
        return child_ > 0;
    }

private:
    [[noreturn]] static void serve(Truth &truth, int commands, int replies)
    {
        char command;
        void *address = nullptr;
        uint64_t serial = 0;
        int opened = 0;
        while (read(commands, &command, 1) == 1) {
            const char *step = "child-open";
            if (command == 'o') {
                api::Ipc ipc;
                if (read(commands, &ipc, sizeof ipc) != sizeof ipc || api::start())
                    _exit(1);
                open_twice(truth, ipc, &address, &serial);
                opened = 2;
            } else if (command == 'c') {
                step = "child-close";
                count(truth, api::close_ipc(address), serial, --opened);
            } else {
                step = "child-reset";
                truth.facts["reset"] = api::reset();
                truth.context_ended(0, truth.born());
                long error = api::close_ipc(address);
                truth.facts["close after reset"] = error;
                error ? truth.failed++ : truth.frees++;
            }
            truth.print(api::name, step, "");
            if (write(replies, "k", 1) != 1)
                break;
        }
        _exit(0);
    }

    /* The second time it has the same address, and needs a second close. */
    static void open_twice(Truth &truth, const api::Ipc &ipc, void **address, uint64_t *serial)
    {
        void *again = nullptr;
        size_t bytes = 0;
        memcpy(&bytes, ipc.bytes + 16, sizeof bytes);
        if (api::open_ipc(address, ipc) || api::open_ipc(&again, ipc))
            _exit(1);
        *serial = truth.hold("imported", bytes, nullptr, false);
        truth.allocs++;
        truth.facts["same address"] = again == *address;
    }

    static void count(Truth &truth, int error, uint64_t serial, int left)
    {
        if (error) {
            truth.failed++;
            return;
        }
        truth.released(serial);
        if (!left)
            truth.gone(serial);
    }

    pid_t child_ = 0;
    int commands_ = -1, replies_ = -1;
};

#endif
