#!/usr/bin/env python3
"""Long-run test of gpuprobe: memory, file descriptors, BPF objects, and exact counts.

gpuprobe starts load.py as its command, so that no call of it is missed. What it takes is sampled
meanwhile; at the end its last report is compared with what the programs of the load say that they
did, and the kernel is asked for every BPF object that it had. Prints tables in Markdown; the exit
status is 1 if a check failed.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bpf_objects

ROOT = Path(__file__).resolve().parent.parent.parent
LOAD = Path(__file__).resolve().parent / "load.py"
# Timeout of a start and of an exit.
PATIENCE_S = 120
# Allowed growth of memory from the first third of the run to the last: allocators keep their peak.
GROWTH = 1.1
GROWTH_MB = 16
# From this many minutes on, the requested rate must be reached, about: before that, starting
# everything takes its share.
FULL_MINUTES = 5
LEAST_RATE = 0.8
# Every map whose entries belong to processes and threads (the launch map does not exist without
# --cudatrace), and the entries allowed in it after the load has exited. The load itself is still
# waiting then: it is a process, which has executed a program and whose libraries were read. The
# code map always has one entry that matches no process.
LEFT_AT_MOST = {
    "threads": 0, "processes": 0, "paths": 0, "captures": 0,
    "late_views": 0, "targets": 2, "programs": 2, "loaders": 2, "noticed": 2, "code_maps": 2,
    # Bounded by least recent use: the oldest entries are evicted.
    "contexts": 16384,
}  # fmt: skip


def anonymous_mb(pid):
    """The rings, which are mapped, too, are memory of the kernel."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status).group(1)) * 1024 / 1e6


def cpu_seconds(pid):
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def sample(pid, start):
    held = bpf_objects.held_by(pid)
    return {
        "seconds": time.monotonic() - start,
        "rss_mb": anonymous_mb(pid),
        "cpu_s": cpu_seconds(pid),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        **{kind: len(ids) for kind, ids in held.items()},
    }, held


def thirds(samples, what):
    """What was sampled in the first third of the time, and in the last.

    >>> thirds([{"seconds": s, "rss_mb": 10 + s} for s in range(10)], "rss_mb")
    ([10, 11, 12, 13], [16, 17, 18, 19])
    >>> thirds([{"seconds": 0, "rss_mb": 5}], "rss_mb")
    ([5], [5])
    """
    end = samples[-1]["seconds"]
    first = [s[what] for s in samples if s["seconds"] <= end / 3]
    last = [s[what] for s in samples if s["seconds"] >= end * 2 / 3]
    return first, last


def rows(samples, count=13):
    """About `count` of the samples, with the first and the last.

    >>> rows([1, 2, 3, 4, 5], 3)
    [1, 3, 5]
    """
    steps = min(count, len(samples)) - 1
    return [samples[round(i * (len(samples) - 1) / max(steps, 1))] for i in range(steps + 1)]


def last_report(path):
    """The last line of the reports, which may be many."""
    with path.open("rb") as reports:
        last = None
        for line in reports:
            last = line
    return json.loads(last)


class Checks:
    """Counts passed checks, and prints failed ones."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def hold(self, name, holds, details=""):
        self.passed += bool(holds)
        self.failed += not holds
        if not holds:
            print(f"FAIL {name}: {details}")

    def equal(self, name, found, expected):
        self.hold(name, found == expected, f"{found}, not {expected}")


class Soak:
    """The run. Leaving it ends what it started."""

    def __init__(self, options):
        self.options = options
        self.folder = tempfile.TemporaryDirectory(prefix="gpuprobe-soak-")
        self.reports = Path(self.folder.name) / "reports"
        self.errors = Path(self.folder.name) / "errors"
        self.tracer = None
        self.samples = []
        self.held = {kind: set() for kind in bpf_objects.KINDS}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.tracer and self.tracer.poll() is None:
            # The load is in its process group.
            os.killpg(self.tracer.pid, signal.SIGKILL)
            self.tracer.wait()
        self.folder.cleanup()

    def start(self):
        options = self.options
        self.tracer = subprocess.Popen(
            [
                options.gpuprobe, "--memleak", "--stacks", options.stacks, "--interval", "2s",
                "--format", "json", "--top", "10", "--output", self.reports, "--",
                "nice", "-n", str(options.nice), sys.executable, "-B", LOAD,
                "--workload", options.workload, "--seconds", str(options.minutes * 60),
                "--rate", str(options.rate), "--processes", str(options.processes),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors.open("w"),
            text=True, start_new_session=True,
        )  # fmt: skip

    def sample(self, start):
        taken, held = sample(self.tracer.pid, start)
        self.samples.append(taken)
        for kind, ids in held.items():
            self.held[kind] |= ids
        return held

    def run(self):
        """The load's totals, and the map entries left when it had exited."""
        start = time.monotonic()
        self.start()
        end = start + self.options.minutes * 60
        while "gpuprobe: tracing" not in self.errors.read_text():
            if self.tracer.poll() is not None or time.monotonic() > start + PATIENCE_S:
                raise RuntimeError(f"gpuprobe does not trace: {self.errors.read_text()}")
            time.sleep(0.05)
        while time.monotonic() < end - self.options.every:
            time.sleep(self.options.every)
            if self.tracer.poll() is not None:
                raise RuntimeError(f"gpuprobe has ended: {self.errors.read_text()}")
            self.sample(start)
        did = json.loads(self.tracer.stdout.readline())
        held = self.sample(start)
        left = self.entries_left(held["map"])
        self.tracer.stdin.close()
        self.tracer.wait(PATIENCE_S)
        return did, left

    def entries_left(self, maps):
        """The reader has 100 ms to process the last exits, and some more on a busy machine."""
        end = time.monotonic() + 10
        while True:
            left = bpf_objects.entries_of_maps(maps, LEFT_AT_MOST)
            few = all(left.get(name, 0) <= most for name, most in LEFT_AT_MOST.items())
            if few or time.monotonic() > end:
                return left
            time.sleep(0.1)


def check(soak, did, left, checks):
    report = last_report(soak.reports)
    memleak = report["memleak"]
    checks.equal("gpuprobe's exit status", soak.tracer.returncode, 0)
    checks.equal("programs that failed", did["wrong"][:3], [])
    checks.equal("what was lost", {k: n for k, n in report["lost"].items() if n}, {})
    for ours, theirs in (
        ("alloc_calls", "allocs"), ("free_calls", "frees"), ("failed_calls", "failed"),
        ("live_allocations", "live"), ("live_bytes", "live_bytes"),
    ):  # fmt: skip
        checks.equal(ours, memleak[ours], did[theirs])
    before, after = map(max, thirds(soak.samples, "rss_mb"))
    checks.hold("memory", after <= before * GROWTH + GROWTH_MB, f"{before:.1f} MB, then {after:.1f} MB")
    for kind in bpf_objects.KINDS:
        # At first it attaches; on a busy machine that takes a while.
        settled = [s[kind] for s in soak.samples if s["seconds"] >= soak.samples[-1]["seconds"] / 3]
        checks.equal(f"{kind}s while it ran", len(set(settled)), 1)
    # Those of processes that start just now come and go; what is left open adds up.
    before, after = map(min, thirds(soak.samples, "descriptors"))
    checks.hold("descriptors", after <= before + 8, f"at least {before}, then {after}")
    for name, most in LEFT_AT_MOST.items():
        found = left.get(name)
        checks.hold(f"entries of {name}", found is not None and found <= most, f"{found} are left")
    if soak.options.minutes >= FULL_MINUTES:
        rate = did["calls"] / did["seconds"]
        checks.hold("calls a second", rate >= LEAST_RATE * soak.options.rate, f"{rate:,.0f}")
    return report


def gone(held):
    """Waits for the kernel to free objects after a grace period; returns the rest, by kind."""
    end = time.monotonic() + PATIENCE_S
    while True:
        left = {kind: ids & bpf_objects.all_ids(kind) for kind, ids in held.items()}
        if not any(left.values()) or time.monotonic() > end:
            return left
        time.sleep(0.1)


def show(soak, did, report, left, counts):
    print("| minutes | memory, MB | CPU, s | descriptors | programs | maps | links |")
    print("|---|---|---|---|---|---|---|")
    for s in rows(soak.samples):
        print(
            f"| {s['seconds'] / 60:.1f} | {s['rss_mb']:.1f} | {s['cpu_s']:.1f} "
            f"| {s['descriptors']} | {s['prog']} | {s['map']} | {s['link']} |"
        )
    lost = sum(report["lost"].values())
    print()
    print("| | said by the programs | counted |")
    print("|---|---|---|")
    print(f"| calls | {did['calls']:,} ({did['calls'] / did['seconds']:,.0f}/s) | lost: {lost:,} |")
    for name, theirs, ours in (
        ("allocations", "allocs", "alloc_calls"), ("frees", "frees", "free_calls"),
        ("never freed", "live", "live_allocations"), ("bytes of these", "live_bytes", "live_bytes"),
    ):  # fmt: skip
        print(f"| {name} | {did[theirs]:,} | {report['memleak'][ours]:,} |")
    print(f"| processes | {did['processes']:,} | |")
    print()
    print(f"Entries left in maps when all had ended: {left}")
    before, after = counts
    for kind in bpf_objects.KINDS:
        print(f"BPF {kind}s on this machine: {before[kind]} before, {after[kind]} after")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--gpuprobe", type=Path, default=ROOT / "target/release/gpuprobe")
    parser.add_argument("--workload", type=Path, default=ROOT / "target/standin/workload")
    parser.add_argument("--minutes", type=float, default=60, help="(60)")
    parser.add_argument("--rate", type=float, default=51_000, help="calls a second (51,000)")
    parser.add_argument("--processes", type=float, default=24, help="short processes a second (24)")
    parser.add_argument("--stacks", default="auto", help="as gpuprobe's option (auto)")
    parser.add_argument("--every", type=float, help="seconds between samples (a 180th of the run)")
    parser.add_argument("--nice", type=int, default=5, help="of the load (5)")
    options = parser.parse_args()
    options.every = options.every or max(options.minutes * 60 / 180, 0.5)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))

    checks = Checks()
    before = {kind: len(bpf_objects.all_ids(kind)) for kind in bpf_objects.KINDS}
    with Soak(options) as soak:
        did, left = soak.run()
        report = check(soak, did, left, checks)
        stays = gone(soak.held)
        for kind, ids in stays.items():
            checks.hold(f"no {kind} stays", soak.held[kind] and not ids, f"of {soak.held[kind]}: {ids}")
        after = {kind: len(bpf_objects.all_ids(kind)) for kind in bpf_objects.KINDS}
        show(soak, did, report, left, (before, after))
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
