#!/usr/bin/env python3
"""`gpuprobe serve` under load, on the stand-in CUDA: times of scrapes, losses, and what it costs.

Many processes hold memory of many call sites, others come and go, one makes calls at a steady rate, and /metrics is
read every second. The same load is then traced by plain --memleak. Prints a table in Markdown; the exit status is 1 if
a call was lost or miscounted, or if memory grew.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from load import numbers

ROOT = Path(__file__).resolve().parent.parent.parent
# Call paths of each process: two to the power of this.
DEPTH = 5
TICKS = os.sysconf("SC_CLK_TCK")
# All call sites have a series.
MEMLEAK = ["--memleak", "--stacks", "auto", "--interval", "24h"]
SERVE = ["serve", "--memleak", "--listen", "127.0.0.1:0"]
# Call stacks that are known in part.
PARTIAL = 'gpuprobe_lost_events_total{what="partial_stacks"}'
# Memory may grow by this from the first third of a run to the last: allocators keep their peak.
GROWTH = 1.1
# Nothing takes longer to start.
PATIENCE_S = 60


def quantile(values, share):
    """
    >>> quantile([3, 1, 2], 0.5), quantile(range(101), 0.99)
    (2, 99)
    """
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def stat(pid):
    """Fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def tree(pid):
    """A process and its descendants."""
    children = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        children += (thread / "children").read_text().split()
    return [pid] + [one for child in children for one in tree(int(child))]


def cpu_seconds(pid):
    """Processor time of a process and its descendants, of those that have ended, too."""
    fields = [stat(one) for one in tree(pid)]
    ticks = sum(int(one[11]) + int(one[12]) for one in fields)
    return (ticks + int(fields[0][13]) + int(fields[0][14])) / TICKS


def anonymous_mb(pid):
    """Anonymous memory of a process and its descendants: the rings, which are mapped, too, are the kernel's."""
    found = (re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{one}/status").read_text()) for one in tree(pid))
    return sum(int(one.group(1)) for one in found if one) * 1024 / 1e6


def thirds(samples):
    """The highest in the first third of the samples, and in the last.

    >>> thirds([1, 2, 9, 4, 5, 6])
    (2, 6)
    """
    part = max(len(samples) // 3, 1)
    return max(samples[:part]), max(samples[-part:])


class Load:
    """The processes. Leaving it ends them."""

    def __init__(self, options):
        self.options = options
        self.children = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()

    def start(self, *words, **more):
        child = subprocess.Popen([str(word) for word in words], text=True, **more)
        self.children.append(child)
        return child

    def start_holders(self):
        """Processes that hold memory of many call sites, once they are told to."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        standin = self.options.standin
        return [self.start(standin / "paths", **pipes) for _ in range(self.options.processes)]

    def pass_by(self):
        """A process that allocates at many call sites and ends; returns when it has ended."""
        passing = self.start(self.options.standin / "paths", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        passing.communicate(f"all {DEPTH} 4096\nexit\n")
        self.children.remove(passing)

    def start_workload(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        workload = self.start(self.options.standin / "workload", "-c", "synchronize", **pipes)
        for _ in ("ready", "ok"):
            workload.stdout.readline()
        return workload

    def start_gpuprobe(self, *words):
        gpuprobe = self.start(self.options.gpuprobe, *words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        url = None
        for line in gpuprobe.stderr:
            if found := re.search(r"serving on (http\S+)", line):
                url = found.group(1)
            if url or ("tracing" in line and words[0] != "serve"):
                return gpuprobe, url
        raise RuntimeError("gpuprobe does not trace")


def scrape(url):
    """The metrics, and how long they took, milliseconds."""
    begun = time.monotonic()
    with urllib.request.urlopen(url + "metrics", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return text, 1000 * (time.monotonic() - begun)


def total(text, metric):
    """Sum of the series of a metric.

    >>> total("# HELP a\\na{b=\\"c d\\"} 1\\na 2\\nab 4\\n", "a")
    3
    """
    values = re.findall(rf"^{re.escape(metric)}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return sum(int(float(value)) for value in values)


def measure(options, words, serves):
    with Load(options) as load:
        holders = load.start_holders()
        workload = load.start_workload()
        gpuprobe, url = load.start_gpuprobe(*words)
        for holder in holders:
            holder.stdin.write(f"all {DEPTH} 4096\n")
            holder.stdin.flush()
        for holder in holders:
            holder.stdout.readline()
        # Call stacks have been named by then.
        end = time.monotonic() + 5
        while time.monotonic() < end:
            time.sleep(1)
            text = scrape(url)[0] if serves else ""
        cpu = cpu_seconds(gpuprobe.pid)
        print(f"pace {options.rate} {options.seconds} 512", file=workload.stdin, flush=True)
        begun, times, memory, passed, refused = time.monotonic(), [], [], 0, 0
        while time.monotonic() - begun < options.seconds:
            if serves:
                try:
                    times.append(scrape(url)[1])
                except urllib.error.HTTPError:
                    refused += 1
            memory.append(anonymous_mb(gpuprobe.pid))
            for _ in range(options.short):
                load.pass_by()
                passed += 1
            time.sleep(max(0, 1 - (time.monotonic() - begun) % 1))
        used = cpu_seconds(gpuprobe.pid) - cpu
        did = numbers(workload.stdout.readline())
        result = {
            "cpu": 100 * used / (time.monotonic() - begun), "memory": memory, "times": times,
            "rate": did["rate"], "refused": refused,
        }  # fmt: skip
        if serves:
            time.sleep(1)
            text, _ = scrape(url)
            result["partial"] = total(text, PARTIAL)
            result["lost"] = total(text, "gpuprobe_lost_events_total") - result["partial"]
            result["missed"] = did["allocs"] + (options.processes + passed) * 2**DEPTH - total(text, "gpuprobe_alloc_calls_total")
            result["series"] = total(text, "gpuprobe_series")
        gpuprobe.send_signal(signal.SIGINT)
        said = gpuprobe.stderr.read()
        if not serves:
            result["lost"] = 1 if "lost" in said else 0
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--gpuprobe", type=Path, default=ROOT / "target/release/gpuprobe")
    parser.add_argument("--standin", type=Path, default=ROOT / "target/standin")
    parser.add_argument("--seconds", type=float, default=60, help="of each run (60)")
    parser.add_argument("--processes", type=int, default=200, help="that hold memory (200)")
    parser.add_argument("--short", type=int, default=0, help="processes that begin and end after each scrape (0)")
    parser.add_argument("--rate", type=float, default=200_000, help="calls a second (200,000)")
    parser.add_argument("--only-serve", action="store_true", help="without the run of plain --memleak")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    runs = {} if options.only_serve else {"--memleak": measure(options, MEMLEAK, False)}
    runs["serve"] = served = measure(options, SERVE, True)
    print("| | calls/s made | lost | partial stacks | CPU, % of a core | memory, first and last third | scrapes | median | p99 | longest |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, run in runs.items():
        first, last = thirds(run["memory"])
        print(
            f"| {name} | {run['rate']:,.0f} | {run['lost']} | {run.get('partial', '')} | {run['cpu']:.1f} "
            f"| {first:.1f}, {last:.1f} MB |",
            end="",
        )
        times = run["times"]
        if times:
            print(
                f" {len(times)} of {run['series']:,} series, {run['refused']} refused | {quantile(times, 0.5):.0f} ms "
                f"| {quantile(times, 0.99):.0f} ms | {max(times):.0f} ms |"
            )
        else:
            print(" | | | |")
    first, last = thirds(served["memory"])
    wrong = []
    if any(run["lost"] for run in runs.values()) or served["missed"]:
        wrong.append(f"{served['missed']} calls miscounted")
    if last > first * GROWTH:
        wrong.append("memory grew")
    print(f"FAIL: {', '.join(wrong)}" if wrong else "0 calls miscounted")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
