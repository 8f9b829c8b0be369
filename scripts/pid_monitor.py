#!/usr/bin/env python3
"""Samples CPU, memory and disk usage of processes from /proc, as CSV.

    scripts/pid_monitor.py PID[=DESCRIPTION] ... [-o FILE]

One row for each process and interval:

    timestamp         RFC 3339, the same in all rows of a sample
    description       as given with the PID, else its name
    pid, name         the name is the kernel's, of up to 15 characters
    cpu_percent       of one CPU since the last sample, all threads together
    memory_mb         resident, in MiB; memory_percent: of this machine's
    disk_read_kb      KiB that storage was asked for since the first sample, and
    disk_write_kb     what was written; empty where /proc/PID/io may not be read

Ends when all of them have ended, after --duration, or at SIGINT or SIGTERM.
"""

import argparse
import csv
import os
import sys
import time
from datetime import datetime
from pathlib import Path

from stress.pacing import Stop

HEADER = (
    *("timestamp", "description", "pid", "name", "cpu_percent", "memory_mb", "memory_percent"),
    *("disk_read_kb", "disk_write_kb"),
)
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def parse_stat(text):
    """(name, state, CPU time in ns, start in ticks) of /proc/PID/stat.

    >>> parse_stat("7 (a (b) c) S " + " ".join(str(n) for n in range(4, 53)))[:2]
    ('a (b) c', 'S')
    >>> parse_stat("7 (a) R " + " ".join(str(n) for n in range(4, 53)))[3]
    22
    """
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()  # the first is field 3
    return name, fields[0], (int(fields[11]) + int(fields[12])) * TICK_NS, int(fields[19])


def parse_io(text):
    """Bytes read from storage, and written to it, of /proc/PID/io.

    >>> parse_io("rchar: 5\\nread_bytes: 4096\\nwrite_bytes: 0\\ncancelled_write_bytes: 9\\n")
    (4096, 0)
    """
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def cpu_between(before, now):
    """Nanoseconds between two of `Process.cpu`. Ticks count ended threads too.

    >>> cpu_between((0, {1: 5}), (0, {1: 900, 2: 100}))
    995
    >>> cpu_between((0, {1: 5, 2: 7}), (10_000_000, {1: 6}))  # a thread has ended
    10000000
    """
    (ticks_before, threads_before), (ticks, threads) = before, now
    exact = sum(ns - threads_before.get(tid, 0) for tid, ns in threads.items())
    if not any(threads.values()) or threads_before.keys() - threads.keys():
        return max(exact, ticks - ticks_before)
    return exact


class Ended(Exception):
    """The process has exited."""


class Process:
    def __init__(self, pid, description):
        self.pid, self.folder = pid, Path(f"/proc/{pid}")
        self.start = self.stat()[3]
        self.description = description or self.stat()[0]
        self.last_time, self.last_cpu = time.monotonic_ns(), self.cpu()
        self.first_io = self.io()

    def read(self, file):
        try:
            return (self.folder / file).read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError) as error:
            raise Ended from error

    def stat(self):
        parsed = parse_stat(self.read("stat"))
        # A zombie has no usage any more, and a PID may be reused.
        if parsed[1] in "ZX" or parsed[3] != getattr(self, "start", parsed[3]):
            raise Ended
        return parsed

    def cpu(self):
        """(ns by ticks, {tid: ns}); no threads where the kernel keeps no such figures."""
        threads = {}
        for path in self.folder.glob("task/*/schedstat"):
            try:
                threads[int(path.parent.name)] = int(path.read_text().split()[0])
            except (OSError, IndexError):
                continue  # ended since
        return self.stat()[2], threads

    def io(self):
        try:
            return parse_io(self.read("io"))
        except (PermissionError, KeyError):
            return None

    def sample(self, total_bytes):
        """The row of the time since the last one, from the name on."""
        name = self.stat()[0]
        resident = int(self.read("statm").split()[1]) * PAGE_BYTES
        now, cpu, io = time.monotonic_ns(), self.cpu(), self.io()
        used, elapsed = cpu_between(self.last_cpu, cpu), now - self.last_time
        self.last_time, self.last_cpu = now, cpu
        disk = ("", "")
        if io and self.first_io:
            disk = [f"{(last - first) / 1024:.0f}" for last, first in zip(io, self.first_io)]
        return (
            name,
            f"{100 * used / elapsed:.3f}",
            f"{resident / (1 << 20):.3f}",
            f"{100 * resident / total_bytes:.4f}",
            *disk,
        )


def monitor(processes, stop, interval, write):
    """Writes a row of each process in each interval."""
    total_bytes = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
    number = 0
    while processes:
        # Missed samples are skipped: samples in quick succession would be meaningless.
        number = max(number + 1, int(stop.elapsed() / interval))
        if not stop.wait_until(stop.started + number * interval):
            return
        stamp = datetime.now().astimezone().isoformat(timespec="milliseconds")
        for process in list(processes):
            try:
                row = process.sample(total_bytes)
            except Ended:
                processes.remove(process)
                continue
            write((stamp, process.description, process.pid, *row))


def target(text):
    """
    >>> target("7"), target("7=gpuprobe, idle")
    ((7, ''), (7, 'gpuprobe, idle'))
    """
    pid, _, description = text.partition("=")
    return int(pid), description


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pids", nargs="+", type=target, metavar="PID[=DESCRIPTION]")
    parser.add_argument("--description", default="", help="of those PIDs that have none")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds (1)")
    parser.add_argument("--duration", type=float, default=0.0, metavar="S", help="0: no limit (0)")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="standard output")
    options = parser.parse_args()
    if not options.interval > 0:
        parser.error("--interval must be more than 0")
    stop = Stop(options.duration)
    stop.on_signals()
    processes = []
    for pid, description in options.pids:
        try:
            processes.append(Process(pid, description or options.description))
        except Ended:
            print(f"pid_monitor.py: there is no process {pid}", file=sys.stderr)
    if not processes:
        return 1
    with open(1 if options.output == "-" else options.output, "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")

        def write(row):
            rows.writerow(row)
            file.flush()  # whoever follows the file sees whole samples

        write(HEADER)
        stop.start()
        monitor(processes, stop, options.interval, write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
