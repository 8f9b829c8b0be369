#!/usr/bin/env python3
"""A JAX program that calls a jitted function a known number of times, and holds arrays.

    python3 jax_program.py STEP ...

It runs the steps in order. After each it prints one JSON line with its calls and the state of its
allocator.

    init     create the arrays, compile the function, and call it a few times
    jit[=N]  N (default 10) calls
    take     arrays of 1 to 32 MiB, and a product of two
    drop     drop half of them
    lines    arrays from functions of its own
    wait     print the line, then read a line from standard input
"""

import jax
import jax.numpy as jnp

import steps

MIB = 1 << 20
WIDTH = 256

did = {"jit": 0}
kept = {}
arrays = []


@jax.jit
def layer(x, weights):
    y = jnp.tanh(x @ weights) * jnp.sin(x)
    return y / (1 + jnp.abs(y).sum(axis=-1, keepdims=True))


def call(count):
    for _ in range(count):
        kept["result"] = layer(kept["x"], kept["weights"])
        kept["result"].block_until_ready()


def run_init():
    """The first calls choose algorithms and build graphs."""
    keys = jax.random.split(jax.random.key(0))
    kept["x"], kept["weights"] = (jax.random.normal(key, (WIDTH, WIDTH)) for key in keys)
    call(5)


def run_jit(count=10):
    call(count)
    did["jit"] += count


def made(mib):
    return jnp.ones((mib, MIB), dtype=jnp.uint8).block_until_ready()


def run_take():
    arrays.extend(made(mib) for mib in (1, 2, 4, 8, 16, 32))
    matrix = jnp.ones((1024, 1024))
    arrays.append((matrix @ matrix).block_until_ready())


def run_drop():
    del arrays[::2]


def run_lines():
    arrays.extend(made(mib) for mib in (40, 48))


def truth():
    stats = jax.devices()[0].memory_stats() or {}
    return {"api": "jax", "version": jax.__version__, "did": did, "stats": stats}


if __name__ == "__main__":
    table = {"init": run_init, "jit": run_jit, "take": run_take, "drop": run_drop, "lines": run_lines, "wait": None}
    steps.run(table, truth)
