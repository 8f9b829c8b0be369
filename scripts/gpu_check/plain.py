"""Checks on plain memory, block by block: shared, static, and driver API."""

import json
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from children import Failed
from expect import compare
from workload import Workload, numbers_of, start, trace

IMPOSSIBLE = "! alloc 1125899906842624"  # more than any machine has
BLOCKS = "alloc 8388608; alloc 8388608; alloc 8388608; free {first}; free {third}"
FAILURES = "; ".join((*[IMPOSSIBLE] * 5, "alloc 1048576; free {fourth}; ! freeaddr {block}; ! freeaddr 0x1000; ? freenull"))
# Freed by another thread; and by several at once, which keep a block each.
THREADS = "crossfree 1000 4096; race 4 1000 512; " + "; ".join(
    f"thread churn-{i}; @churn-{i} alloc 1048576; join churn-{i}" for i in range(4)
)
OLD = "; ".join(["alloc 1048576"] * 5)
FREE_OLD = "; ".join(f"free {i}" for i in range(5))


def run(workload, text):
    """The commands, with the slots that they allocate named in turn."""
    first = len(workload.slots)
    places = ("first", "second", "third", "fourth")
    workload.names |= {place: str(first + i) for i, place in enumerate(places)}
    workload.run(text)


def run_all(workload):
    """All of it; and one more block on each GPU but the first, of another size."""
    run(workload, f"{BLOCKS}; {FAILURES}; {THREADS}")
    gpus = numbers_of(workload.run("info"))["devices"]
    for device in range(gpus):
        workload.run(f"setdevice {device}; alloc {(device + 1) << 20}")
    workload.run("setdevice 0")
    return gpus


def check_started(bench, build, function, *options):
    tracer = bench.trace("--", bench.program(build), *options)
    workload = Workload(tracer, build)
    run_all(workload)
    expected = workload.expected(function, exited=True)
    workload.end(bench)
    _, report = tracer.finish()
    bench.all_equal(compare(report, expected))
    comms = {process["pid"]: process["comm"] for process in report["memleak"]["processes"]}
    bench.equal("name of the process", build, comms.get(workload.pid))


@dataclass(frozen=True)
class User:
    """An unprivileged user with these capabilities."""

    rights: tuple = ()
    uid: int = 65_534

    def prefix(self):
        """The command prefix that runs a command as this user.

        >>> User(("bpf",)).prefix()[-2:]
        ('--inh-caps=-all,+bpf', '--ambient-caps=-all,+bpf')
        """
        sets = ",".join(["-all", *(f"+{right}" for right in self.rights)])
        who = (f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups")
        return ("setpriv", *who, f"--inh-caps={sets}", f"--ambient-caps={sets}")


def check_late_own(bench, build, function):
    """A user's program, traced by the same user with two capabilities."""
    tracer = User(("bpf", "perfmon"))
    check_late(bench, build, function, prefix=User().prefix(), user=tracer)


def check_late_others(bench, build, function):
    """Root's program, traced by a user with three capabilities."""
    check_late(bench, build, function, user=User(("bpf", "perfmon", "sys_ptrace")))


def check_late(bench, build, function, *options, prefix=(), user=None):
    workload = start(bench, build, *options, prefix=prefix)
    run(workload, OLD)
    before = workload.account()
    tracer = bench.trace("--pid", str(workload.pid), user=user)
    tracer.wait_tracing()
    run(workload, FREE_OLD)
    lenient = run_all(workload) > 1
    expected = workload.expected(function, before)
    interim = tracer.fresh_report()
    live = sum(block.size_bytes for block in expected.blocks)
    bench.equal("live_bytes while it runs", live, interim["memleak"]["live_bytes"])
    status, report = tracer.finish()
    bench.equal("exit status of gpuprobe", 0, status)
    bench.all_equal(compare(report, expected, unknown_device=lenient))
    workload.end(bench)


def check_everywhere(bench, build, function, *options):
    """Without --pid: one program is there already, another comes later."""
    present = start(bench, build, *options)
    run(present, OLD)
    before = present.account()
    tracer = bench.trace(interval="100ms")
    tracer.wait_tracing()
    future = start(bench, build, *options)
    future.run("synchronize")
    tracer.fresh_report()  # by then it is traced
    run(present, FREE_OLD)
    lenient = run_all(present) > 1
    run_all(future)
    expected = present.expected(function, before) + future.expected(function, exited=True)
    future.end(bench)
    tracer.fresh_report()
    _, report = tracer.finish()
    bench.all_equal(compare(report, expected, unknown_device=lenient))
    present.end(bench)


def mapped_file(pid, name):
    """The file of that name (up to a dot) that the process has mapped."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith(name + "."):
            return path
    raise Failed(f"process {pid} has not mapped {name}")


def check_new_copy(bench):
    """A copy of the runtime that no process had mapped when tracing began.

    Until gpuprobe has seen it, calls go by the driver's name; none is missed
    and none is counted twice.
    """
    present = start(bench, "workload")
    present.run("synchronize")
    original = mapped_file(present.pid, "libcudart.so")
    tracer = bench.trace(interval="100ms")
    tracer.wait_tracing()

    copies = bench.directory / "copy"
    copies.mkdir()
    for name in {original.name, ".".join(original.name.split(".")[:3])}:
        shutil.copy(original, copies / name)
    search = f"{copies}:{original.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    future = start(bench, "workload", env=os.environ | {"LD_LIBRARY_PATH": search})
    future.run("synchronize")
    run(future, f"{BLOCKS}; {FAILURES}; crossfree 1000 4096")
    bench.equal("the copy is in use", copies, mapped_file(future.pid, "libcudart.so").parent)
    tracer.fresh_report()
    _, report = tracer.finish()
    bench.all_equal(compare(report, future.expected("cudaMalloc"), any_api=True))
    bench.figure("calls through a new copy of the runtime", json.dumps(report["memleak"]["calls"]))
    for workload in (present, future):
        workload.end(bench)


def check_killed_command(bench):
    tracer, workload = trace(bench, "workload")
    run(workload, BLOCKS)
    expected = workload.expected("cudaMalloc", exited=True)
    workload.child.tell("kill9")
    bench.equal("exit status", 128 + signal.SIGKILL, tracer.wait())
    _, report = tracer.finish()
    bench.all_equal(compare(report, expected))


def check_killed_process(bench):
    workload = start(bench, "workload_static")
    workload.run("synchronize")
    before = workload.account()
    tracer = bench.trace("--pid", str(workload.pid))
    tracer.wait_tracing()
    run(workload, BLOCKS)
    lenient = numbers_of(workload.run("info"))["devices"] > 1
    expected = workload.expected("cuMemAlloc_v2", before, exited=True)
    workload.child.process.kill()
    workload.child.wait()
    tracer.fresh_report()
    _, report = tracer.finish()
    bench.all_equal(compare(report, expected, unknown_device=lenient))


def check_exit_status(bench):
    tracer = bench.trace("--", "sh", "-c", "exit 7")
    bench.equal("of a command that exits with 7", 7, tracer.wait())
