#!/usr/bin/env python3
"""A CuPy program that prints the state of its memory pool.

    python3 cupy_pool.py STEP ...

It runs the steps in order. After each it prints one JSON line.

    init     create the context
    take     arrays of 512 bytes to 32 MiB
    drop     drop half of them: the pool keeps their blocks
    release  the pool gives back what is free
    wait     print the line, then read a line from standard input
"""

import cupy

import steps

kept = []


def run_init():
    cupy.cuda.Device(0).use()
    cupy.cuda.runtime.free(0)


def run_take():
    kept.extend(cupy.cuda.alloc(512 << shift) for shift in range(0, 17, 2))


def run_drop():
    del kept[::2]


def run_release():
    cupy.get_default_memory_pool().free_all_blocks()


STEPS = {
    "init": run_init,
    "take": run_take,
    "drop": run_drop,
    "release": run_release,
    "wait": None,
}


def truth():
    pool = cupy.get_default_memory_pool()
    return {
        "api": "cupy",
        "version": cupy.__version__,
        "total": pool.total_bytes(),
        "used": pool.used_bytes(),
    }


if __name__ == "__main__":
    steps.run(STEPS, truth)
