"""Whether gpuprobe keeps up with PyTorch's allocator, and its memory per live tensor: the
stand-in's program allocates and frees tensors at a rate, with and without call stacks, and keeps
a million of them.

    tensors.py [--gpuprobe FILE] [--standin FOLDER] [--rate N] [--seconds N] [--live N]

RATE counts both. Prints a table in Markdown; the exit status is 0 only if nothing is lost at the rate and
a live tensor takes no more than is allowed. Needs root.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WAYS = {
    "off": ["--stacks", "off"],
    "auto": ["--stacks", "auto"],
    "auto, and requests": ["--stacks", "auto", "--tensors", "requested"],
}
# The minimum event rate, and the maximum bytes per live tensor.
LEAST_RATE = 0.98
MOST_BYTES = 80


class Program:
    """The stand-in's program: a command a line, a reply a line."""

    def __init__(self, options):
        self.process = subprocess.Popen([options.standin / "torchlike"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().startswith("ready")

    def say(self, command):
        """The numbers in the reply, by name."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline().split()
        if reply[0] != "ok":
            sys.exit(f"{command}: {' '.join(reply)}")
        return fields(reply[1:])

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


def fields(words):
    """
    >>> fields(["mallocs=5", "seconds=0.5", "0x7f00"])
    {'mallocs': 5.0, 'seconds': 0.5}
    """
    return {name: float(value) for name, _, value in (word.partition("=") for word in words) if value}


class Tracer:
    """gpuprobe, attached to the program."""

    def __init__(self, options, program, arguments):
        self.reports = tempfile.NamedTemporaryFile(suffix=".jsonl")
        self.process = subprocess.Popen(
            [options.gpuprobe, "--memleak", "--pid", str(program.process.pid), "--interval", "1h",
             "--format", "json", "-o", self.reports.name, *arguments],
            stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.startswith("gpuprobe: tracing"):
                return
        sys.exit(f"gpuprobe does not trace: {line}")

    def cpu_seconds(self):
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self):
        """The last report: its losses, and the figures of the first device."""
        self.process.send_signal(2)
        self.process.stderr.read()
        if self.process.wait() != 0:
            sys.exit(f"gpuprobe ended with {self.process.returncode}")
        report = json.loads(Path(self.reports.name).read_text().splitlines()[-1])
        lost = {name: count for name, count in report["lost"].items() if count}
        return lost, report["memleak"]["processes"][0]["pytorch"][0]


def rate(options, arguments):
    """The program's events a second, gpuprobe's share of a core, and the losses."""
    program = Program(options)
    tracer = Tracer(options, program, arguments)
    # Until the call path is cached.
    program.say("trate 1000 0.5 4096")
    before = tracer.cpu_seconds()
    made = program.say(f"trate {options.rate} {options.seconds} 4096")
    spent = tracer.cpu_seconds() - before
    lost, found = tracer.end()
    program.end()
    seen = found["alloc_calls"] + found["free_calls"] - 500
    if seen + lost.get("tensors", 0) != made["mallocs"] + made["frees"]:
        sys.exit(f"{seen} of {made} seen, and lost: {lost}")
    return (made["mallocs"] + made["frees"]) / made["seconds"], spent / made["seconds"], lost


def memory(options, arguments):
    """gpuprobe's bytes per live tensor, and its memory before."""
    program = Program(options)
    tracer = Tracer(options, program, arguments)
    program.say("tleak forward 1000 512")
    before = tracer.resident_bytes()
    program.say(f"tleak forward {options.live} 512")
    # All events have been read when its CPU time stops growing.
    rest = None
    while rest != tracer.cpu_seconds():
        rest = tracer.cpu_seconds()
        time.sleep(0.5)
    after = tracer.resident_bytes()
    lost, found = tracer.end()
    program.end()
    if found["tensors"] != options.live + 1000 or lost:
        sys.exit(f"{found['tensors']} tensors seen, and lost: {lost}")
    return (after - before) / options.live, after


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpuprobe", default=ROOT / "target/release/gpuprobe")
    parser.add_argument("--standin", type=Path, default=ROOT / "target/standin")
    parser.add_argument("--rate", type=int, default=300_000)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--live", type=int, default=1_000_000)
    options = parser.parse_args()
    print("| call stacks | events/s | lost | CPU, % of a core | CPU per event, ns | a live tensor, bytes | with"
          f" {options.live:,} of them, MiB |")
    print("|---|---|---|---|---|---|---|")
    is_good = True
    for way, arguments in WAYS.items():
        made, share, lost = rate(options, arguments)
        each, whole = memory(options, arguments)
        is_good &= not lost and made >= options.rate * LEAST_RATE and each <= MOST_BYTES
        print(f"| {way} | {made:,.0f} | {sum(lost.values()):,} | {share * 100:.0f} | {share / made * 1e9:,.0f} |"
              f" {each:.0f} | {whole / 2**20:.0f} |", flush=True)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
