#!/usr/bin/env python3
"""How long gpuprobe takes from its start until it has attached to a command's libraries.

    scripts/bench/start.py [--attach KIND] [--runs RUNS] GPUPROBE...

Runs each GPUPROBE in turn with a program of the stand-in CUDA (target/standin), with and without call stacks, and
prints the medians of RUNS (20) runs in milliseconds. KIND is that of gpuprobe's option. Needs root.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

WORKLOAD = Path(__file__).resolve().parent.parent.parent / "target/standin/workload"
STACKS = ("off", "auto")


def measure(gpuprobe, attach, stacks):
    """Milliseconds until it says that it has attached."""
    how = ["--attach", attach] if attach else []
    words = [gpuprobe, "--memleak", "--stacks", stacks, *how, "--interval", "24h", "--", WORKLOAD, "-c", "exit"]
    begun = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        took = [time.monotonic() - begun for line in run.stderr if "attached" in line]
    if run.returncode or not took:
        sys.exit(f"{gpuprobe} attached to nothing")
    return 1000 * took[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--attach", metavar="KIND")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("gpuprobe", nargs="+")
    options = parser.parse_args()
    times = {(gpuprobe, stacks): [] for gpuprobe in options.gpuprobe for stacks in STACKS}
    for _ in range(options.runs):
        for (gpuprobe, stacks), taken in times.items():
            taken.append(measure(gpuprobe, options.attach, stacks))
    for (gpuprobe, stacks), taken in times.items():
        print(f"{gpuprobe} --stacks {stacks}: {statistics.median(taken):.0f} ms")


if __name__ == "__main__":
    main()
