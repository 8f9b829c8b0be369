#!/usr/bin/env python3
"""gpuprobe under load, on the stand-in CUDA: its resource usage, and whether it sees every call.

A workload makes calls at a steady rate while gpuprobe traces it with --memleak; each scenario is a
rate, a part of the allocations that is freed, and whether a report is printed every two seconds.
What gpuprobe counted is compared with what the workload did. Prints a table in Markdown; the exit
status is 1 if a count is wrong, or if a call was lost at a rate that was asked for.
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

from scenario import Scenario, scenarios

ROOT = Path(__file__).resolve().parent.parent.parent
# A program without output for this long has failed.
PATIENCE_S = 60
PRINT_EVERY = "2s"
NEVER = "24h"
COLUMNS = (
    ("calls/s asked for", lambda r: r["scenario"].asked()),
    ("freed", lambda r: f"{100 * r['scenario'].free_ratio:.0f} %"),
    ("reports", lambda r: "every 2 s" if r["scenario"].prints else "at the end"),
    ("calls/s made", lambda r: f"{r['calls_per_second']:,.0f}"),
    ("lost", lambda r: f"{r['lost']:,}"),
    ("CPU, % of a core", lambda r: f"{r['cpu_percent']:.2f}"),
    ("CPU per call", lambda r: f"{r['cpu_us_per_call']:.3f} µs"),
    ("live at the end", lambda r: f"{r['live']:,}"),
    ("memory at the end", lambda r: f"{r['rss_mb']:,.1f} MB"),
    ("report, median", lambda r: milliseconds(r["report_us"], 0.5)),
    ("report, longest", lambda r: milliseconds(r["report_us"], 1)),
)


def milliseconds(times_us, quantile):
    """
    >>> milliseconds([1500, 500, 2500], 0.5), milliseconds([], 1)
    ('1.5 ms', '')
    """
    if not times_us:
        return ""
    ordered = sorted(times_us)
    return f"{ordered[int(quantile * (len(ordered) - 1))] / 1000:.1f} ms"


def cpu_seconds(pid):
    """Of all threads."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def anonymous_mb(pid):
    """The rings, which are mapped, too, are memory of the kernel."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status).group(1)) * 1024 / 1e6


def said(text):
    """(allocations, live blocks, live bytes, losses) of the last report.

    >>> said('{"memleak": {"alloc_calls": 5, "live_allocations": 3, "live_bytes": 9}, "lost": {"tasks": 0, "memory": 2}}')
    (5, 3, 9, '2 memory')
    """
    report = json.loads(text.splitlines()[-1])
    lost = ", ".join(f"{count} {what}" for what, count in report["lost"].items() if count)
    return *(report["memleak"][name] for name in ("alloc_calls", "live_allocations", "live_bytes")), lost


def numbers(reply):
    """The numbers of the workload's reply.

    >>> numbers("ok allocs=2 seconds=0.5")
    {'allocs': 2, 'seconds': 0.5}
    """
    pairs = (word.split("=") for word in reply.split()[1:])
    return {name: json.loads(number) for name, number in pairs}


class Run:
    """One scenario. Leaving it ends what it started."""

    def __init__(self, options, scenario):
        self.options, self.scenario = options, scenario
        self.children = []
        self.folder = tempfile.TemporaryDirectory()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        self.folder.cleanup()

    def start(self, *command, **options):
        child = subprocess.Popen([str(word) for word in command], text=True, **options)
        self.children.append(child)
        return child

    def start_workload(self):
        workload = self.start(self.options.workload, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for command in (None, "synchronize"):  # creates the context: the device is known
            if command:
                print(command, file=workload.stdin, flush=True)
            if not workload.stdout.readline().startswith(("ready", "ok")):
                raise RuntimeError("the workload did not start")
        return workload

    def start_gpuprobe(self, target, reports, errors):
        every = PRINT_EVERY if self.scenario.prints else NEVER
        tracer = self.start(
            self.options.gpuprobe, "--memleak", "--stacks", self.options.stacks, "--interval", every,
            "--pid", target.pid, "--format", "json", "--top", 10, "--output", reports,
            stderr=errors.open("w"), env=os.environ | {"GPUPROBE_LOG": "gpuprobe=debug"},
        )  # fmt: skip
        end = time.monotonic() + PATIENCE_S
        while "gpuprobe: tracing" not in errors.read_text():
            if tracer.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"gpuprobe does not trace: {errors.read_text()}")
            time.sleep(0.01)
        return tracer

    def start_monitor(self, tracer):
        if self.options.csv:
            self.start(
                sys.executable, ROOT / "scripts/pid_monitor.py",
                "--description", self.scenario.name(), "--interval", 1,
                "--output", self.options.csv / f"{self.scenario.file_name()}.csv", tracer.pid,
            )  # fmt: skip

    def measure(self):
        folder = Path(self.folder.name)
        reports, errors = folder / "reports", folder / "errors"
        workload = self.start_workload()
        tracer = self.start_gpuprobe(workload, reports, errors)
        self.start_monitor(tracer)
        cpu = cpu_seconds(tracer.pid)
        scenario = self.scenario
        pace = f"pace {scenario.rate} {self.options.seconds} 512 threads={scenario.threads} freed={scenario.free_ratio}"
        print(pace, file=workload.stdin, flush=True)
        did = numbers(workload.stdout.readline())
        calls = did["allocs"] + did["frees"] + did["failed"]
        # It exits with its target; until then, /proc has its usage.
        used, rss_mb = cpu_seconds(tracer.pid) - cpu, anonymous_mb(tracer.pid)
        workload.stdin.close()
        tracer.wait(PATIENCE_S)
        allocations, live, live_bytes, lost = said(reports.read_text())
        times_us = [int(t) for t in re.findall(r"report us=(\d+)", errors.read_text())]
        return {
            "scenario": self.scenario,
            "calls": calls,
            "calls_per_second": did["rate"],
            "lost": calls - (2 * allocations - live),
            "is_exact": (allocations, live, live_bytes)
            == (did["allocs"], did["live"], did["bytes"]),
            "said_lost": lost,
            "cpu_percent": 100 * used / did["seconds"],
            "cpu_us_per_call": 1e6 * used / max(calls, 1),
            "live": did["live"],
            "rss_mb": rss_mb,
            # The last is the final report.
            "report_us": times_us if self.scenario.prints else times_us[-1:],
        }


def wrong(result):
    """Why a result is wrong, or None.

    Losing calls is no error where nothing bounds their rate, but it has to be said.
    """
    if result["is_exact"]:
        return f"lost nothing, but says: {result['said_lost']}" if result["said_lost"] else None
    if not result["said_lost"]:
        return f"{result['lost']} calls are missing, and nothing says so"
    return None if result["scenario"].rate == 0 else result["said_lost"]


def table(results):
    yield "| " + " | ".join(name for name, _ in COLUMNS) + " |"
    yield "|" + "---|" * len(COLUMNS)
    for result in results:
        yield "| " + " | ".join(show(result) for _, show in COLUMNS) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--gpuprobe", type=Path, default=ROOT / "target/release/gpuprobe")
    parser.add_argument("--workload", type=Path, default=ROOT / "target/standin/workload")
    parser.add_argument("--seconds", type=float, default=60, help="of each scenario (60)")
    parser.add_argument("--stacks", default="off", help="as gpuprobe's option (off)")
    parser.add_argument("--rates", help="calls a second, separated by commas; 0: as many as go")
    parser.add_argument("--csv", type=Path, help="folder for CPU and memory over time")
    parser.add_argument("--json", type=Path, help="the figures")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))

    if options.csv:
        options.csv.mkdir(parents=True, exist_ok=True)
    results, failures = [], []
    rates = [float(rate) for rate in options.rates.split(",")] if options.rates else None
    for scenario in scenarios(rates):
        with Run(options, scenario) as run:
            result = run.measure()
        results.append(result)
        print(f"{scenario.name()}: {result['lost']} lost", file=sys.stderr, flush=True)
        if why := wrong(result):
            failures.append(f"FAIL {scenario.name()}: {why}")
    print(*table(results), sep="\n")
    if options.json:
        plain = [{**result, "scenario": result["scenario"].name()} for result in results]
        options.json.write_text(json.dumps(plain, indent=1) + "\n")
    print(*failures, sep="\n", end="\n" if failures else "")
    print(f"{len(results) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures or not results else 0


if __name__ == "__main__":
    sys.exit(main())
