#!/usr/bin/env python3
"""CPU time of `gpuprobe top` on each of its screens, and of --memleak, on the stand-in CUDA.

Many processes hold memory of many call sites, and some allocate more each second. In each round --memleak traces them
without a report, then with one every two seconds, then `top` does on a terminal of 120 columns and 40 lines, first with
the table of processes, then with a process open, then with a call site open. Prints a table in Markdown: medians of all
rounds.
"""

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import serve

ROOT = Path(__file__).resolve().parent.parent.parent
# Call paths of each process: the sum of two to the power of each.
DEPTHS = (6, 5, 2)
# Processes that allocate more, each second.
BUSY = 10
MEMLEAK = ["--memleak", "--stacks", "auto"]
PATIENCE_S = 60


class Terminal:
    """A terminal that gpuprobe runs on. What it shows is kept as it was sent."""

    def __init__(self, load, *words):
        self.own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.child = load.start(
            load.options.gpuprobe, *words, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True
        )  # fmt: skip
        os.close(other)
        self.shown = ""
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        while select.select([self.own], [], []):
            try:
                self.shown += os.read(self.own, 1 << 16).decode(errors="replace")
            except OSError:
                return

    def press(self, keys, *expected):
        """Types keys and waits until all of these are shown."""
        self.shown = ""
        os.write(self.own, keys.encode())
        self.wait(*expected)

    def wait(self, *expected):
        end = time.monotonic() + PATIENCE_S
        while not all(one in self.text() for one in expected):
            if time.monotonic() > end:
                raise RuntimeError(f"no {expected}: {self.text()[-2000:]}")
            time.sleep(0.1)

    def text(self):
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.shown)


class Churn:
    """Processes that allocate more each second, so that figures change."""

    def __init__(self, holders):
        self.holders, self.is_over = holders, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.is_over.wait(1):
            for number, holder in enumerate(self.holders):
                tell(holder, f"call 6 {number} 4096 10")

    def end(self):
        self.is_over.set()
        self.thread.join()


def tell(holder, line):
    holder.stdin.write(line + "\n")
    holder.stdin.flush()
    holder.stdout.readline()


def percent(gpuprobe, seconds):
    """Processor time of gpuprobe and its readers, percent of a core."""
    begun, used = time.monotonic(), serve.cpu_seconds(gpuprobe.pid)
    time.sleep(seconds)
    return 100 * (serve.cpu_seconds(gpuprobe.pid) - used) / (time.monotonic() - begun)


def targets(holders):
    """Other processes of the machine are not traced."""
    return ["--pid", ",".join(str(holder.pid) for holder in holders)]


def plain(load, holders, interval):
    """--memleak with a report at each interval."""
    gpuprobe, _ = load.start_gpuprobe(*MEMLEAK, *targets(holders), "--interval", interval)
    # Messages after the first are read, so that they hold up nothing.
    threading.Thread(target=gpuprobe.stderr.read, daemon=True).start()
    return gpuprobe


def stop(child, number=signal.SIGINT):
    child.send_signal(number)
    child.wait(PATIENCE_S)


def measure(load, holders, results):
    """One round: the results of each line of the table are added to."""
    options = load.options
    churn = None
    try:
        for name, interval in (("--memleak, no report", "24h"), ("--memleak, every 2 s", "2s")):
            gpuprobe = plain(load, holders, interval)
            churn = begin(holders)
            results[name].append(percent(gpuprobe, options.seconds))
            churn.end()
            stop(gpuprobe)
        screen = Terminal(load, "top", *targets(holders))
        screen.wait("HELD")
        churn = begin(holders)
        results["top, table of processes"].append(percent(screen.child, options.seconds))
        screen.press("\r", "CALL SITE")
        time.sleep(options.settle)
        results["top, a process"].append(percent(screen.child, options.seconds))
        screen.press("\r", "call stack")
        time.sleep(options.settle)
        results["top, a call site"].append(percent(screen.child, options.seconds))
        churn.end()
        screen.press("q")
        screen.child.wait(PATIENCE_S)
    finally:
        if churn:
            churn.end()


def begin(holders):
    """Has all processes allocate by each of their call paths, and some of them go on."""
    for holder in holders:
        for depth in DEPTHS:
            tell(holder, f"all {depth} 4096")
    churn = Churn(holders[:BUSY])
    time.sleep(5)
    return churn


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--gpuprobe", type=Path, default=ROOT / "target/release/gpuprobe")
    parser.add_argument("--standin", type=Path, default=ROOT / "target/standin")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement (20)")
    parser.add_argument("--settle", type=float, default=5, help="seconds after a screen has changed, for names of functions (5)")
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--processes", type=int, default=100, help="that hold memory (100)")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    names = (
        "--memleak, no report", "--memleak, every 2 s",
        "top, table of processes", "top, a process", "top, a call site",
    )  # fmt: skip
    results = {name: [] for name in names}
    sites = options.processes * sum(2**depth for depth in DEPTHS)
    with serve.Load(options) as load:
        holders = load.start_holders()
        for holder in holders:
            holder.stdout.readline()
        for _ in range(options.rounds):
            measure(load, holders, results)
    print(f"{options.processes} processes, {sites:,} call sites; medians of {options.rounds} rounds of {options.seconds:g} s")
    print()
    print("| | CPU, % of a core | more than --memleak without a report | each round |")
    print("|---|---|---|---|")
    least = statistics.median(results[names[0]])
    for name, values in results.items():
        value = statistics.median(values)
        print(f"| {name} | {value:.2f} | {value - least:+.2f} | {', '.join(f'{one:.2f}' for one in values)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
