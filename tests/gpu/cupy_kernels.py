#!/usr/bin/env python3
"""A CuPy program that counts its launches of named kernels.

    python3 cupy_kernels.py STEP ...

It runs the steps in order. After each it prints one JSON line.

    init            create the arrays, compile the kernels
    raw[=N]         N (default 100) launches of a RawKernel
    elementwise[=N] N (default 100) launches of an ElementwiseKernel
    mixed[=N]       N (default 100) each of some operations of CuPy's own
    wait            print the line, then read a line from standard input
"""

import cupy

import steps

COUNT = 4096

launches = {"gpuprobe_raw": 0, "gpuprobe_twice": 0}
kept = {}

raw = cupy.RawKernel(
    r"""
    extern "C" __global__ void gpuprobe_raw(float *x, int count) {
        int index = blockIdx.x * blockDim.x + threadIdx.x;
        if (index < count)
            x[index] += 1;
    }
    """,
    "gpuprobe_raw",
)
twice = cupy.ElementwiseKernel("float32 x", "float32 y", "y = 2 * x", "gpuprobe_twice")


def run_init():
    kept["x"] = cupy.arange(COUNT, dtype=cupy.float32)
    for run in (run_raw, run_elementwise, run_mixed):
        run(1)


def run_raw(count=100):
    for _ in range(count):
        raw((COUNT // 128,), (128,), (kept["x"], cupy.int32(COUNT)))
    cupy.cuda.Device().synchronize()
    launches["gpuprobe_raw"] += count


def run_elementwise(count=100):
    for _ in range(count):
        twice(kept["x"], kept["x"])
        kept["x"].fill(1)  # so that nothing grows without end
    cupy.cuda.Device().synchronize()
    launches["gpuprobe_twice"] += count


def run_mixed(count=100):
    for _ in range(count):
        kept["sum"] = (kept["x"] + 1 - cupy.sqrt(kept["x"])).sum()
    cupy.cuda.Device().synchronize()


STEPS = {
    "init": run_init,
    "raw": run_raw,
    "elementwise": run_elementwise,
    "mixed": run_mixed,
    "wait": None,
}


def truth():
    return {"api": "cupy", "version": cupy.__version__, "launches": launches}


if __name__ == "__main__":
    steps.run(STEPS, truth)
