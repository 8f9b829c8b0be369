"""The processes of a check: started, waited for, and ended on every path."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Timeout of a program's step and of a report.
WAIT_SECONDS = 60
# Importing and compiling take their time.
SLOW_SECONDS = 150
# Timeout of all checks together. Checks that have not run by then fail.
TOTAL_SECONDS = 540


class Failed(Exception):
    """The reason why a check cannot go on."""


class Deadline:
    """Bounds every wait, and all of them together."""

    end = time.monotonic() + TOTAL_SECONDS

    @classmethod
    def wait_for(cls, what, ready, seconds=WAIT_SECONDS, poll_seconds=0.002):
        """Returns the first result of `ready()` that is neither None nor False."""
        end = min(time.monotonic() + seconds, cls.end)
        while True:
            result = ready()
            if result is not None and result is not False:
                return result
            if time.monotonic() > end:
                raise Failed(f"no {what} in time")
            time.sleep(poll_seconds)


class Lines:
    """The complete lines of a file that another process is writing."""

    def __init__(self, path):
        self.path = path

    def all(self):
        if not self.path.exists():
            return []
        whole, newline, _ = self.path.read_text(errors="replace").rpartition("\n")
        return whole.split("\n") if newline else []

    def first(self, start):
        return next((line for line in self.all() if line.startswith(start)), None)


class Child:
    """A process with its input from us and its output in files."""

    count = 0

    def __init__(self, directory, argv, env=None):
        Child.count += 1
        base = directory / f"{Child.count:02}-{Path(argv[0]).name}"
        self.out = Lines(Path(f"{base}.out"))
        self.err = Lines(Path(f"{base}.err"))
        with open(self.out.path, "wb") as out, open(self.err.path, "wb") as err:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=out, stderr=err, env=env
            )
        self.pid = self.process.pid
        self.told = 0

    def write(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise Failed(f"{self.process.args[0]} is gone before {line!r}: {self.err.all()[-3:]}") from error

    def go(self):
        """Ends the program's wait."""
        self.write("")

    def wait_for(self, what, found, seconds=WAIT_SECONDS):
        """The first result of `found` that is not None; its end without one is a failure."""

        def ready():
            ended = self.process.poll() is not None  # before what it wrote is read
            result = found()
            if result is None and ended:
                status = self.process.returncode
                raise Failed(f"{self.process.args[0]} ended ({status}) before {what}: {self.err.all()[-3:]}")
            return result

        return Deadline.wait_for(what, ready, seconds)

    def truth_line(self, start):
        """The first line that begins so."""
        return Deadline.wait_for(f"line {start!r}", lambda: self.out.first(start))

    def truths(self):
        return [json.loads(line) for line in self.out.all() if line.startswith('{"step"')]

    def truth(self, step, number=1, seconds=WAIT_SECONDS):
        """The line that the program printed after the number-th such step."""

        def found():
            steps = [truth for truth in self.truths() if truth["step"] == step]
            return steps[number - 1] if len(steps) >= number else None

        return self.wait_for(f"step {step}", found, seconds)

    def tell(self, line):
        """Writes a command of the workload's (tests/standin) and does not wait for its reply."""
        self.told += 1
        self.write(line)

    def ask(self, line, seconds=WAIT_SECONDS):
        """The workload's reply to a command: "ok ..." or "error ...". Its first line is "ready"."""
        self.tell(line)

        def found():
            lines = self.out.all()
            return lines[self.told] if len(lines) > self.told else None

        return self.wait_for(f"the reply to {line!r}", found, seconds)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def wait(self, seconds=WAIT_SECONDS):
        """The exit status, as a shell gives it: 128 + N for signal N."""
        status = Deadline.wait_for(
            "end of " + str(self.process.args[0]), self.process.poll, seconds
        )
        return 128 - status if status < 0 else status


class Program(Child):
    """A program under test that runs beside gpuprobe."""


class Floor(Child):
    """Empty programs on what these modes of gpuprobe probe in a process."""

    def __init__(self, bench, pid, modes):
        super().__init__(bench.directory, [bench.floor, "hold", str(pid), *modes])
        self.wait_for("the line 'attached'", lambda: self.out.first("attached"))


class Tracer(Child):
    """gpuprobe; with a command, also the program's input and output."""

    def __init__(
        self,
        bench,
        *arguments,
        modes=("--memleak",),
        env=None,
        interval="500ms",
        user=None,
        program=None,
    ):
        """`user` runs gpuprobe as another user; `program` is another gpuprobe."""
        self.start = time.monotonic()
        folder = bench.directory
        if user:
            folder = Path(tempfile.mkdtemp(dir=folder))
            os.chown(folder, user.uid, user.uid)
        reports = folder / f"{Child.count + 1:02}-reports.json"
        super().__init__(
            bench.directory,
            [
                *(user.prefix() if user else ()),
                program or bench.gpuprobe,
                *(*modes, "--format", "json", "--interval", interval),
                *("-o", str(reports), *arguments),
            ],
            env,
        )
        self.report_lines = Lines(reports)

    def reports(self):
        return [json.loads(line) for line in self.report_lines.all()]

    def wait_tracing(self):
        """Seconds from start to attached."""

        self.wait_for("the line 'gpuprobe: tracing'", lambda: self.err.first("gpuprobe: tracing"))
        return time.monotonic() - self.start

    def fresh_report(self):
        """A report that was begun after now: the next one may be in progress."""
        seen = len(self.report_lines.all())
        Deadline.wait_for(
            "report of gpuprobe",
            lambda: len(self.report_lines.all()) >= seen + 2 or self.process.poll() is not None,
        )
        return self.reports()[-1]

    def finish(self):
        """Sends SIGINT unless it has exited; (exit status, final report)."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        status = self.wait()
        reports = self.reports()
        if not reports or not reports[-1]["final"]:
            raise Failed(f"no final report; exit status {status}, {self.err.all()[-3:]}")
        return status, reports[-1]


def adopt_orphans():
    """Makes orphaned grandchildren children of this process, so that they can be ended."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def children():
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # ended since
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def end_children():
    """Each round ends one generation; its orphans are adopted then."""
    end = time.monotonic() + 20
    while pids := children():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            print(f"# still there after SIGKILL: {pids}", file=sys.stderr)
            return
        time.sleep(0.01)
