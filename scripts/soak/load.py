#!/usr/bin/env python3
"""The load of the soak: workloads that come and go, at a steady rate of calls all together.

Three at a time make calls at a third of the rate each, on two threads, for one to four seconds, and
free what they allocate. Beside them, short ones come at a steady rate, make some twenty calls, and two
of three end holding something: what gpuprobe remembers of these is bounded, by their number. A line of
output says in JSON what all of them did; then a line on standard input is waited for.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time

SLOTS = 3
SHORT_ALLOCATIONS = 12
COUNTED = {"allocs": "allocs", "frees": "frees", "failed": "failed", "live": "live", "bytes": "live_bytes"}


class Sums:
    """Totals of the workloads that have exited."""

    def __init__(self):
        self.lock = threading.Lock()
        self.did = dict.fromkeys((*COUNTED.values(), "calls", "processes"), 0)
        self.wrong = []

    def run(self, workload, command):
        call = [workload, "-c", f"{command}; exit"]
        done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=False)
        with self.lock:
            if done.returncode:
                self.wrong.append(f"{command}: status {done.returncode}")
                return
            truth = json.loads(done.stdout.splitlines()[-1].removeprefix("done "))
            for name, key in COUNTED.items():
                self.did[key] += truth[name]
            self.did["calls"] += sum(truth[name] for name in ("allocs", "frees", "failed"))
            self.did["processes"] += 1


def long_ones(options, sums, end, seed):
    chance = random.Random(seed)
    while (left := end - time.monotonic()) > 0.5:
        seconds = min(chance.uniform(1, 4), left)
        sums.run(options.workload, f"pace {options.rate / SLOTS} {seconds:.3f} 512 threads=2")


def short_ones(options, sums, end):
    started = []
    due, number = time.monotonic(), 0
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        keep_every = 0 if number % 3 == 0 else 2
        command = f"churn 1 {SHORT_ALLOCATIONS} 4096 {keep_every}"
        started.append(threading.Thread(target=sums.run, args=(options.workload, command)))
        started[-1].start()
        started = [thread for thread in started if thread.is_alive()]
        number += 1
        due += 1 / options.processes
    for thread in started:
        thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--workload", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, required=True, help="calls a second")
    parser.add_argument("--processes", type=float, required=True, help="short processes a second")
    options = parser.parse_args()
    sums, start = Sums(), time.monotonic()
    end = start + options.seconds
    threads = [threading.Thread(target=short_ones, args=(options, sums, end))]
    threads += [
        threading.Thread(target=long_ones, args=(options, sums, end, seed)) for seed in range(SLOTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - start
    print(json.dumps(sums.did | {"seconds": seconds, "wrong": sums.wrong}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
