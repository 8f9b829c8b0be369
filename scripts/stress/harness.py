"""Shared by the stress programs: their threads and processes, and how they end."""

import ctypes
import json
import os
import select
import signal
import sys
import threading
import traceback

import backends
from accounts import Worker, process_record, statement
from pacing import SLICE_SECONDS, Stop

ALL_SAY = ("backend", "ended_by", "seconds")
NAME_BYTES = 15  # that the kernel keeps of a thread's name


class Run:
    """One run of a program: `body(worker, stop)` is what each of its threads does."""

    def __init__(self, program, options):
        self.program, self.options = program, options
        self.stop = Stop(options.duration)
        self.stop.on_signals()

    def open(self):
        self.backend = backends.open_backend(self.options)

    def ready(self):
        """From here on a tracer can attach: the context is there."""
        print("ready", os.getpid(), flush=True)
        while self.options.wait and not self.stop.reason:
            # A signal would not interrupt a read.
            if select.select([sys.stdin], [], [], SLICE_SECONDS)[0]:
                if not sys.stdin.readline():
                    raise SystemExit("standard input ended before the line that --wait waits for")
                return

    def work(self, bodies, process=0):
        """Runs the bodies by the names of their threads, and returns what the
        process did. The stop's time begins."""
        # Text: a seed from text is the same in every process and version of Python.
        seed = f"{self.options.seed}/{process}"
        workers = [Worker(self.backend, name, f"{seed}/{name}") for name in bodies]
        # The blocks stay live until the program exits: a tensor frees its memory when it is
        # collected.
        self.workers = workers
        errors = []
        threads = [
            threading.Thread(target=self._thread, args=(worker, body, errors), daemon=True)
            for worker, body in zip(workers, bodies.values(), strict=True)
        ]
        self.stop.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(1)  # the handlers of signals run in between
        if errors:
            raise errors[0]
        self.seconds = self.stop.elapsed()
        self.stop.end("done")
        self.backend.check()
        return process_record(os.getpid(), workers)

    def _thread(self, worker, body, errors):
        try:
            worker.tid = threading.get_native_id()
            with open("/proc/thread-self/comm", "w", encoding="ascii") as comm:
                comm.write(worker.name[:NAME_BYTES])
            self.backend.enter_thread()
            body(worker, self.stop)
            self.backend.synchronize()
        except BaseException as error:  # it is the main thread's to raise
            errors.append(error)
            self.stop.end("error")

    def finish(self, processes, seconds, more=None):
        """Says what was done and ends at once: what is live is not to be freed by
        destructors after it has been counted."""
        line = statement(
            {
                "program": self.program,
                "backend": self.backend.name,
                "function": self.backend.function,
                "seed": self.options.seed,
                "ended_by": self.stop.reason,
                **(more or {}),
            },
            seconds,
            processes,
        )
        print(line, flush=True)
        os._exit(0)


def run_threads(program, options, bodies, more=None):
    """A program of one process. `more` may be filled by the bodies; it goes into its
    last line."""
    run = Run(program, options)
    run.open()
    run.ready()
    processes = [run.work(bodies)]
    run.finish(processes, run.seconds, more)


def run_processes(program, options, bodies):
    """A program of `options.procs` processes with the same bodies. This one stays
    without CUDA: a context does not survive fork."""
    run = Run(program, options)
    run.backend = backends.Named(options.backend)
    run.ready()
    run.stop.start()
    children = {}
    run.stop.heard.append(lambda _: signal_all(children, signal.SIGTERM))
    try:
        for process in range(options.procs):
            pid, reader = fork(run, bodies, process)
            children[pid] = reader
        if run.stop.reason:  # a signal may have come before the last was there
            signal_all(children, signal.SIGTERM)
        records = [json.load(reader) for reader in children.values()]
        for pid in list(children):
            del children[pid]  # first: what has been waited for is not ours to signal
            os.waitpid(pid, 0)
    except json.JSONDecodeError as error:
        raise SystemExit("a process ended before it said what it did") from error
    finally:
        signal_all(children, signal.SIGKILL)
    # The children's figures for the run as a whole; this process began before their contexts.
    said = [{key: record.pop(key) for key in ALL_SAY} for record in records]
    run.backend.name = said[0]["backend"]
    reasons = [one["ended_by"] for one in said]
    run.stop.end(next((reason for reason in reasons if reason != "SIGTERM"), reasons[0]))
    run.finish(records, max(one["seconds"] for one in said))


def fork(run, bodies, process):
    """Starts a process; (its PID, where it says what it did)."""
    read, write = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid:
        os.close(write)
        return pid, os.fdopen(read)
    status = 1
    try:
        end_with_parent(parent)
        run.stop.heard.clear()
        run.open()
        record = run.work(bodies, process)
        values = (run.backend.name, run.stop.reason, run.seconds)
        record |= dict(zip(ALL_SAY, values, strict=True))
        with os.fdopen(write, "w") as out:
            json.dump(record, out)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def end_with_parent(parent):
    """Kills the process when its parent exits."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def signal_all(pids, what):
    """None of them has been waited for, so each is still ours."""
    for pid in list(pids):
        os.kill(pid, what)
