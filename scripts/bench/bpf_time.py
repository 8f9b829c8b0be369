#!/usr/bin/env python3
"""Run time of gpuprobe's BPF programs, by the kernel's statistics.

    sudo scripts/bench/bpf_time.py GPUPROBE [GPUPROBE...]

Each program traces the stand-in CUDA of target/standin (`make -C tests/standin OUT=$PWD/target/standin`)
in turn with the others. Prints nanoseconds per run of a BPF program: the smallest of several windows, which
other load on the machine disturbs least. The kernel's own clock reads are part of it: about 35 ns here.
A call has two runs, entry and return; a launch has one.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
STANDIN = Path(__file__).resolve().parents[2] / "target/standin"
WINDOWS = 12
CALLS = 40_000
# What is called, by which workload, and how it is traced.
CASES = {
    "cuMemAlloc + cuMemFree": ("workload_static", f"timepairs {CALLS} 4096", ["--memleak", "--stacks", "off"]),
    "the same, --stacks auto": ("workload_static", f"timepairs {CALLS} 4096", ["--memleak"]),
    "launch": ("workload", f"timelaunch {CALLS}", ["--cudatrace"]),
    "copy": ("workload", f"copy h2d 64 {CALLS}", ["--bandwidth-util"]),
}


class Workload:
    def __init__(self, name):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([STANDIN / name], stdin=pipe, stdout=pipe, text=True)
        self.process.stdout.readline()

    def run(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        if not reply.startswith("ok"):
            sys.exit(f"workload: {command}: {reply}")

    def end(self):
        self.process.kill()
        self.process.wait()


def statistics(pid):
    """{program id: (nanoseconds, runs)} of the BPF programs that the process has loaded."""
    found = {}
    for entry in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            text = Path(f"/proc/{pid}/fdinfo/{entry}").read_text()
        except OSError:
            continue
        numbers = dict(re.findall(r"^(prog_id|run_time_ns|run_cnt):\s+(\d+)$", text, re.MULTILINE))
        if len(numbers) == 3:
            found[numbers["prog_id"]] = int(numbers["run_time_ns"]), int(numbers["run_cnt"])
    return found


def per_run(before, after):
    """Nanoseconds per run between two statistics; None without runs.

    >>> per_run({"1": (100, 10)}, {"1": (300, 20), "2": (100, 10)})
    15.0
    >>> per_run({}, {"1": (0, 0)})
    """
    changes = [(ns - before.get(key, (0, 0))[0], runs - before.get(key, (0, 0))[1]) for key, (ns, runs) in after.items()]
    runs = sum(runs for _, runs in changes)
    return sum(ns for ns, _ in changes) / runs if runs else None


def measure(gpuprobe, workload, command, options):
    command_line = [gpuprobe, "--pid", str(workload.process.pid), *options]
    tracer = subprocess.Popen(command_line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        tracer.stderr.readline()
        workload.run(command)
        windows = []
        for _ in range(WINDOWS):
            before = statistics(tracer.pid)
            workload.run(command)
            windows.append(per_run(before, statistics(tracer.pid)))
        return min(windows)
    finally:
        tracer.terminate()
        tracer.wait()


def main(gpuprobes):
    if not gpuprobes:
        sys.exit(__doc__)
    enabled = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        for case, (program, command, options) in CASES.items():
            workload = Workload(program)
            try:
                workload.run(command)
                times = [measure(gpuprobe, workload, command, options) for gpuprobe in gpuprobes]
            finally:
                workload.end()
            print(f"{case:<28}", *(f"{time:8.1f} ns" for time in times), flush=True)
    finally:
        STATISTICS.write_text(enabled)


if __name__ == "__main__":
    main(sys.argv[1:])
