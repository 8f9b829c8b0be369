#!/usr/bin/env python3
"""A JAX program that prints the state of its allocator.

    python3 jax_memory.py STEP ...

It runs the steps in order. After each it prints one JSON line.

    init     create the context
    take     arrays of 1 to 32 MiB, and a product of two
    drop     drop half of them
    wait     print the line, then read a line from standard input
"""

import jax
import jax.numpy as jnp

import steps

MIB = 1 << 20

kept = []


def run_init():
    jax.devices()


def run_take():
    kept.extend(jnp.ones((size, MIB), dtype=jnp.uint8) for size in (1, 2, 4, 8, 16, 32))
    matrix = jnp.ones((1024, 1024))
    kept.append(matrix @ matrix)
    for array in kept:
        array.block_until_ready()


def run_drop():
    del kept[::2]


STEPS = {"init": run_init, "take": run_take, "drop": run_drop, "wait": None}


def truth():
    stats = jax.devices()[0].memory_stats() or {}
    return {"api": "jax", "version": jax.__version__, "stats": stats}


if __name__ == "__main__":
    steps.run(STEPS, truth)
