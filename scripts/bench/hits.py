#!/usr/bin/env python3
"""What a hit of gpuprobe's BPF programs costs in a program that does other work between two hits.

    sudo scripts/bench/hits.py GPUPROBE [GPUPROBE...]

A Python script with the stand-in CUDA of target/standin (`make -C tests/standin OUT=$PWD/target/standin`)
allocates and frees tensors and memory, makes events, launches and copies; before each call it writes 8 MB of its own, so
that little of what the programs use is still in the caches. Some calls come from the main thread, below 15 or
40 Python frames, some from a thread without Python while the main thread waits, as those of autograd do.
Each gpuprobe traces it in turn with the others. Prints nanoseconds per run of a BPF program by the kernel's
statistics, whose own clock reads are part of it: the median of the windows, and the quartiles.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")
CALLS = 400
QUERIES_FOR = 0.1
MEMORY, LAUNCHES, COPIES = ["--memleak"], ["--cudatrace"], ["--bandwidth-util"]
WITHOUT = ["--stacks", "off"]
NATIVE = ["--python", "off"]
# The calls that are made, and from where; how they are traced.
KINDS = {
    "tensor given": ("give", [MEMORY, MEMORY + NATIVE, MEMORY + WITHOUT]),
    "tensor taken back": ("take", [MEMORY, MEMORY + WITHOUT]),
    "cudaMalloc": ("malloc", [MEMORY, MEMORY + WITHOUT]),
    "cudaFree": ("free", [MEMORY, MEMORY + WITHOUT]),
    "cudaEventCreate": ("event", [MEMORY, MEMORY + WITHOUT]),
    "cudaEventDestroy": ("forget", [MEMORY]),
    "launch": ("launch", [LAUNCHES]),
    "copy": ("copy", [COPIES]),
}
PLACES = ("15 frames", "40 frames", "a thread")
BARE = {"take", "free", "forget", "launch", "copy"}

# Evicts the caches before each call. Without frame pointers, as most libraries.
LOOPS = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
void *gp_torch_malloc(size_t, uint64_t);
int gp_torch_free(void *);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemcpy(void *, const void *, size_t, int);
int cudaEventCreate(void **), cudaEventDestroy(void *);
int cuInit(unsigned), cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                   void **);
enum { ROOM = 8 << 20, MOST = 4096 };
static char room[ROOM], host[64];
static void *blocks[MOST], *areas[MOST], *events[MOST], *target, *kernel;
static void evict(void) {
    for (size_t at = 0; at < ROOM; at += 64)
        room[at]++;
}
int prepare(const char *image, const char *name) {
    void *module;
    return cuInit(0) || cudaMalloc(&target, 4096) || cuModuleLoadData(&module, image) ||
           cuModuleGetFunction(&kernel, module, name);
}
void give(int i) { evict(); blocks[i] = gp_torch_malloc(4096, 0); }
void take(int i) { evict(); gp_torch_free(blocks[i]); }
void malloc_(int i) { evict(); cudaMalloc(&areas[i], 4096); }
void free_(int i) { evict(); cudaFree(areas[i]); }
void event(int i) { evict(); cudaEventCreate(&events[i]); }
void forget(int i) { evict(); cudaEventDestroy(events[i]); }
void launch(int i) { evict(); cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0); (void)i; }
void copy(int i) { evict(); cudaMemcpy(target, host, sizeof host, 1); (void)i; }
struct work { void (*call)(int); int calls; };
static void *work(void *given) {
    struct work *work = given;
    for (int i = 0; i < work->calls; i++)
        work->call(i);
    return NULL;
}
void on_a_thread(void (*call)(int), int calls) {
    struct work given = { call, calls };
    pthread_t thread;
    pthread_create(&thread, NULL, work, &given);
    pthread_join(thread, NULL);
}
"""

# "KIND FRAMES CALLS" makes calls below so many frames; 0: on a thread.
SCRIPT = r"""
import ctypes, sys
loops = ctypes.CDLL(sys.argv[1])
assert loops.prepare(sys.argv[2].encode().decode("unicode_escape").encode(), sys.argv[3].encode()) == 0
KINDS = {"give": loops.give, "take": loops.take, "malloc": loops.malloc_, "free": loops.free_,
         "event": loops.event, "forget": loops.forget, "launch": loops.launch, "copy": loops.copy}

def make(call, calls):
    for number in range(calls):
        call(number)

def down(depth, call, calls):
    return down(depth - 1, call, calls) if depth else make(call, calls)

print("ready", flush=True)
for line in sys.stdin:
    kind, frames, calls = line.split()
    call = KINDS[kind]
    if int(frames):
        # make, the innermost down, and the module
        down(int(frames) - 3, call, int(calls))
    else:
        loops.on_a_thread(call, int(calls))
    print("done", flush=True)
"""


class Script:
    """The program that is traced."""

    def __init__(self, standin, folder):
        library = Path(folder) / "loops.so"
        # Instead of a real CUDA.
        environment = os.environ | {"LD_LIBRARY_PATH": str(standin.resolve())}
        links = [f"-L{standin}", "-l:libc10_cuda.so", "-l:libcudart.so.12", "-l:libcuda.so.1"]
        subprocess.run(["cc", "-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-pthread", "-x", "c", "-", "-o",
                        library, *links], input=LOOPS, text=True, check=True)
        magic = re.search(r'STANDIN_IMAGE_MAGIC "(.*)"', (ROOT / "tests/standin/cuda_abi.h").read_text())[1]
        self.process = subprocess.Popen([sys.executable, "-B", "-c", SCRIPT, library, f"{magic}work\\n", "work"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout.readline() == "ready\n"

    def call(self, kind, place, calls):
        frames = 0 if place == "a thread" else int(place.split()[0])
        self.process.stdin.write(f"{kind} {frames} {calls}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def times_in_bpf(pid):
    """{id: (nanoseconds, runs)} of the BPF programs that the process has loaded."""
    found = {}
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = entry.read_text()
        except OSError:
            continue
        numbers = dict(re.findall(r"^(prog_id|run_time_ns|run_cnt):\s+(\d+)$", text, re.MULTILINE))
        if len(numbers) == 3:
            found[int(numbers["prog_id"])] = int(numbers["run_time_ns"]), int(numbers["run_cnt"])
    return found


def time_in_bpf(pid):
    return [sum(column) for column in zip(*times_in_bpf(pid).values())]


def windows(gpuprobe, script, kind, arguments, places):
    """{place: (nanoseconds per run, runs per call)} of a window in each place, while gpuprobe traces."""
    tracer = subprocess.Popen([gpuprobe, *arguments, "--pid", str(script.process.pid), "--interval", "1h", "--format",
                               "json", "-o", "/dev/null"], stderr=subprocess.PIPE, text=True)
    found = {}
    try:
        for line in tracer.stderr:
            if line.startswith("gpuprobe: tracing"):
                break
        else:
            sys.exit(f"gpuprobe does not trace: {line}")
        # Queries for the current device are probed at first.
        time.sleep(QUERIES_FOR)
        before_it = {"take": "give", "free": "malloc", "forget": "event"}.get(kind)
        after_it = {"give": "take", "malloc": "free", "event": "forget"}.get(kind)
        for place in places:
            # The first calls of a path are not known yet.
            for calls in (CALLS, CALLS):
                if before_it:
                    script.call(before_it, place, calls)
                start = time_in_bpf(tracer.pid)
                script.call(kind, place, calls)
                ns, runs = (after - before for before, after in zip(start, time_in_bpf(tracer.pid)))
                if after_it:
                    script.call(after_it, place, calls)
            found[place] = ns / max(runs, 1), runs / CALLS
    finally:
        tracer.send_signal(2)
        tracer.stderr.read()
        if tracer.wait() != 0:
            sys.exit(f"gpuprobe ended with {tracer.returncode}")
    return found


def shown(values):
    """
    >>> shown([3, 1, 2, 4, 5])
    '3 (2 to 4)'
    """
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:,.0f} ({low:,.0f} to {high:,.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpuprobe", nargs="+", type=Path)
    parser.add_argument("--standin", type=Path, default=ROOT / "target/standin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    before = SWITCH.read_text()
    SWITCH.write_text("1")
    try:
        with tempfile.TemporaryDirectory() as folder:
            script = Script(options.standin, folder)
            print("| call | from | traced by | hits | " + " | ".join(f"{one}, ns a hit" for one in options.gpuprobe) + " |")
            print("|---|---|---|---|" + "---|" * len(options.gpuprobe))
            for name in options.kinds.split(","):
                kind, ways = KINDS[name]
                places = PLACES[1:2] if kind in BARE else PLACES
                for arguments in ways:
                    some = places if arguments == MEMORY else places[:1]
                    found = [[windows(one, script, kind, arguments, some) for one in options.gpuprobe]
                             for _ in range(options.rounds)]
                    for place in some:
                        cells = [shown([turn[i][place][0] for turn in found]) for i in range(len(options.gpuprobe))]
                        hits = found[0][0][place][1]
                        print(f"| {name} | {place} | {' '.join(arguments)} | {hits:.1f} | {' | '.join(cells)} |", flush=True)
            script.end()
    finally:
        SWITCH.write_text(before)


if __name__ == "__main__":
    main()
