#!/usr/bin/env python3
"""A CuPy program that counts its launches of named kernels, and holds arrays.

    python3 cupy_program.py STEP ...

It runs the steps in order. After each it prints one JSON line, with the state of its pool.

    init            create the arrays, compile the kernels
    raw[=N]         N (default 100) launches of a RawKernel
    elementwise[=N] N (default 100) launches of an ElementwiseKernel
    mixed[=N]       N (default 100) each of some operations of CuPy's own
    take            memory of 512 bytes to 32 MiB
    drop            drop half of it: the pool keeps the blocks
    release         the pool gives back what is free
    lines           arrays from functions of its own
    wait            print the line, then read a line from standard input
"""

import cupy

import steps

COUNT = 4096
MIB = 1 << 20

launches = {"gpuprobe_raw": 0, "gpuprobe_twice": 0}
kept = {}
arrays = []

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


def run_take():
    arrays.extend(cupy.cuda.alloc(512 << shift) for shift in range(0, 17, 2))


def run_drop():
    del arrays[::2]


def run_release():
    cupy.get_default_memory_pool().free_all_blocks()


def made(mib):
    return cupy.ones((mib, MIB), dtype=cupy.uint8)


def run_lines():
    arrays.extend(made(mib) for mib in (40, 48))


NAMES = "init raw elementwise mixed take drop release lines".split()
STEPS = {name: globals()[f"run_{name}"] for name in NAMES} | {"wait": None}


def truth():
    pool = cupy.get_default_memory_pool()
    sums = {"total": pool.total_bytes(), "used": pool.used_bytes()}
    return {"api": "cupy", "version": cupy.__version__, "launches": launches, **sums}


if __name__ == "__main__":
    steps.run(STEPS, truth)
