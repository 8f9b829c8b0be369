"""Checks on the plain programs: shared, static, and driver API."""

import json
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from children import Failed
from expect import compare, expect_leak

# Exits by itself, and makes its context with the first allocation.
WHOLE_STEPS = ("blocks", "failures", "handoff", "churn", "devices")
# Attached to at the first wait, compared at the second.
LATE_STEPS = (
    *("init", "old", "wait"),
    *("blocks", "failures", "free-old", "handoff", "churn", "devices", "wait"),
)


def check_started(bench, program, function, *options):
    tracer = bench.trace("--", bench.program(program), *options, *WHOLE_STEPS)
    status = tracer.wait()
    after = tracer.truth(WHOLE_STEPS[-1])
    _, report = tracer.finish()
    bench.equal("exit status", 0, status)
    bench.all_equal(compare(report, expect_leak(function, after, exited=True)))
    comms = {process["pid"]: process["comm"] for process in report["memleak"]["processes"]}
    bench.equal("name of the process", program, comms.get(after["pid"]))


def gpu_count(truth):
    """The `devices` step leaves one block of more than 1 MiB on all but the first."""
    return 1 + max((block["device"] for block in truth["blocks"]), default=0)


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


def check_late_own(bench, program, function):
    """A user's program, traced by the same user with two capabilities."""
    tracer = User(("bpf", "perfmon"))
    check_late(bench, program, function, prefix=User().prefix(), user=tracer)


def check_late_others(bench, program, function):
    """Root's program, traced by a user with three capabilities."""
    check_late(bench, program, function, user=User(("bpf", "perfmon", "sys_ptrace")))


def check_late(bench, program, function, *options, prefix=(), user=None):
    target = bench.start(*prefix, bench.program(program), *options, *LATE_STEPS)
    before = target.truth("wait")
    tracer = bench.trace("--pid", str(target.pid), user=user)
    tracer.wait_tracing()
    target.go()
    after = target.truth("wait", 2)
    expected = expect_leak(function, after, before)
    lenient = gpu_count(after) > 1
    interim = tracer.fresh_report()
    bench.equal("live_bytes while it runs", after["live_bytes"], interim["memleak"]["live_bytes"])
    status, report = tracer.finish()
    bench.equal("exit status of gpuprobe", 0, status)
    bench.all_equal(compare(report, expected, unknown_device=lenient))
    target.go()
    bench.equal("exit status of the program", 0, target.wait())


def check_everywhere(bench, program, function, *options):
    """Without --pid: one program is there already, another comes later."""
    present = bench.start(bench.program(program), *options, *LATE_STEPS)
    before = present.truth("wait")
    tracer = bench.trace()
    tracer.wait_tracing()
    present.go()
    future = bench.start(bench.program(program), *options, *WHOLE_STEPS)
    bench.equal("exit status of the later program", 0, future.wait())
    after = present.truth("wait", 2)
    expected = expect_leak(function, after, before) + expect_leak(
        function, future.truth(WHOLE_STEPS[-1]), exited=True
    )
    tracer.fresh_report()
    _, report = tracer.finish()
    bench.all_equal(compare(report, expected, unknown_device=gpu_count(after) > 1))
    present.go()
    present.wait()


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
    present = bench.start(bench.program("leak_shared"), "init", "wait")
    present.truth("wait")
    original = mapped_file(present.pid, "libcudart.so")
    tracer = bench.trace()
    tracer.wait_tracing()

    copies = bench.directory / "copy"
    copies.mkdir()
    for name in {original.name, ".".join(original.name.split(".")[:3])}:
        shutil.copy(original, copies / name)
    search = f"{copies}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    future = bench.start(
        bench.program("leak_shared"),
        *("blocks", "failures", "handoff", "wait"),
        env=os.environ | {"LD_LIBRARY_PATH": search},
    )
    after = future.truth("wait")
    bench.equal("the copy is in use", copies, mapped_file(future.pid, "libcudart.so").parent)
    tracer.fresh_report()
    _, report = tracer.finish()
    bench.all_equal(compare(report, expect_leak("cudaMalloc", after), any_api=True))
    bench.figure("calls through a new copy of the runtime", json.dumps(report["memleak"]["calls"]))
    for program in (present, future):
        program.go()
        program.wait()


def check_killed_command(bench):
    tracer = bench.trace("--", bench.program("leak_shared"), "blocks", "kill")
    bench.equal("exit status", 128 + signal.SIGKILL, tracer.wait())
    _, report = tracer.finish()
    after = tracer.truth("blocks")
    bench.all_equal(compare(report, expect_leak("cudaMalloc", after, exited=True)))


def check_killed_process(bench):
    target = bench.start(bench.program("leak_static"), "init", "wait", "blocks", "wait")
    before = target.truth("wait")
    tracer = bench.trace("--pid", str(target.pid))
    tracer.wait_tracing()
    target.go()
    after = target.truth("wait", 2)
    target.process.kill()
    target.wait()
    tracer.fresh_report()
    _, report = tracer.finish()
    bench.all_equal(compare(report, expect_leak("cuMemAlloc_v2", after, before, exited=True)))


def check_exit_status(bench):
    tracer = bench.trace("--", "sh", "-c", "exit 7")
    bench.equal("of a command that exits with 7", 7, tracer.wait())
