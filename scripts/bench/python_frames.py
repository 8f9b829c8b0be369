"""Cost of Python frames per traced call: cudaMalloc of the stand-in, from a script with this many
Python frames on the stack, with `--python auto` and `--python off`, in turn in one run.

    python_frames.py [--gpuprobe FILE] [--standin FOLDER] [--python FILE] [--windows N] [--calls N]

Each window attaches to the same running script and has it make calls of a path that is known by then; the
script measures them. The first window of each kind counts for nothing. Prints a table in Markdown; the
exit status is 0 only if what is added is within the limits. Needs root.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Frames, and the limit of their added cost per call.
LIMITS_NS = {20: 1500, 60: 3000}
WAYS = ("off", "auto")

# Makes calls at a depth on request: "DEPTH CALLS" returns nanoseconds per call.
WORKLOAD = """
import ctypes, sys, time
runtime = ctypes.CDLL(sys.argv[1])
malloc, free = runtime.cudaMalloc, runtime.cudaFree
malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
free.argtypes = [ctypes.c_void_p]
pointer = ctypes.c_void_p()
place = ctypes.addressof(pointer)

def measure(calls):
    clock, spent = time.perf_counter_ns, 0
    for _ in range(calls):
        begin = clock()
        malloc(place, 4096)
        spent += clock() - begin
        free(pointer)
    return spent / calls

def down(depth, calls):
    return down(depth - 1, calls) if depth else measure(calls)

print("ready", flush=True)
for line in sys.stdin:
    depth, calls = map(int, line.split())
    # measure, the functions above it and the module
    print(down(depth - 3, calls), flush=True)
"""


def window(options, script, way, depth):
    """Nanoseconds of a call while it is traced."""
    tracer = subprocess.Popen(
        [options.gpuprobe, "--memleak", "--pid", str(script.pid), "--python", way, "--stacks", "auto",
         "--interval", "1h", "--format", "json", "-o", "/dev/null"],
        stderr=subprocess.PIPE, text=True)
    try:
        for line in tracer.stderr:
            if line.startswith("gpuprobe: tracing"):
                break
        else:
            sys.exit(f"gpuprobe does not trace: {line}")
        # Until the call path is cached.
        ask(script, depth, options.calls // 4)
        return ask(script, depth, options.calls)
    finally:
        tracer.send_signal(2)
        tracer.stderr.read()
        if tracer.wait() != 0:
            sys.exit(f"gpuprobe ended with {tracer.returncode}")


def ask(script, depth, calls):
    script.stdin.write(f"{depth} {calls}\n")
    script.stdin.flush()
    return float(script.stdout.readline())


def measure(options, script, depth):
    """Nanoseconds per call in each window, by variant; compare them in pairs."""
    found = {way: [] for way in WAYS}
    for index in range(options.windows + 1):
        # The order alternates.
        for way in WAYS if index % 2 else reversed(WAYS):
            found[way].append(window(options, script, way, depth))
    return {way: times[1:] for way, times in found.items()}


def added(found):
    """The median difference of the pairs of windows.

    >>> added({"off": [100, 110, 300], "auto": [150, 170, 310]})
    50
    """
    return statistics.median(auto - off for off, auto in zip(found["off"], found["auto"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpuprobe", default=ROOT / "target/release/gpuprobe")
    parser.add_argument("--standin", type=Path, default=ROOT / "target/standin")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--windows", type=int, default=7)
    parser.add_argument("--calls", type=int, default=20000)
    options = parser.parse_args()
    command = [options.python, "-B", "-c", WORKLOAD, options.standin / "libcudart.so.12"]
    script = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    is_within = True
    try:
        assert script.stdout.readline() == "ready\n"
        version = subprocess.check_output([options.python, "-V"], text=True).split()[1]
        print(f"| CPython {version} | off, us a call | auto, us a call | ratio | added, us | a frame, ns | limit, us |")
        print("|---|---|---|---|---|---|---|")
        for depth, limit in LIMITS_NS.items():
            untraced = ask(script, depth, options.calls)
            found = measure(options, script, depth)
            off, auto = (statistics.median(found[way]) for way in WAYS)
            more = added(found)
            is_within &= more <= limit
            print(f"| {depth} frames (untraced {untraced / 1000:.2f}) | {off / 1000:.2f} | {auto / 1000:.2f} |"
                  f" {auto / off:.2f} | {more / 1000:+.2f} | {more / depth:.0f} | +{limit / 1000:.1f} |")
    finally:
        script.stdin.close()
        script.wait()
    sys.exit(0 if is_within else 1)


if __name__ == "__main__":
    main()
