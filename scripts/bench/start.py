#!/usr/bin/env python3
"""How long gpuprobe takes from its start until it has attached to a command's libraries.

    scripts/bench/start.py GPUPROBE...

Runs each GPUPROBE in turn with a program of the stand-in CUDA (target/standin), with and without call stacks, and
prints the medians of 20 runs in milliseconds. Needs root.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

WORKLOAD = Path(__file__).resolve().parent.parent.parent / "target/standin/workload"
RUNS = 20
STACKS = ("off", "auto")


def measure(gpuprobe, stacks):
    """Milliseconds until it says that it has attached."""
    words = [gpuprobe, "--memleak", "--stacks", stacks, "--interval", "24h", "--", WORKLOAD, "-c", "exit"]
    begun = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        took = [time.monotonic() - begun for line in run.stderr if "attached to" in line]
    if run.returncode or not took:
        sys.exit(f"{gpuprobe} attached to nothing")
    return 1000 * took[0]


def main(gpuprobes):
    if not gpuprobes:
        sys.exit(__doc__)
    times = {(gpuprobe, stacks): [] for gpuprobe in gpuprobes for stacks in STACKS}
    for _ in range(RUNS):
        for (gpuprobe, stacks), taken in times.items():
            taken.append(measure(gpuprobe, stacks))
    for (gpuprobe, stacks), taken in times.items():
        print(f"{gpuprobe} --stacks {stacks}: {statistics.median(taken):.0f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
