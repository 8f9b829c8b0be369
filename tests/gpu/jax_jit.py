#!/usr/bin/env python3
"""A JAX program that calls a jitted function a known number of times.

    python3 jax_jit.py STEP ...

It runs the steps in order. After each it prints one JSON line.

    init     create the arrays, compile the function, and call it a few times
    jit[=N]  N (default 10) calls
    wait     print the line, then read a line from standard input
"""

import jax
import jax.numpy as jnp

import steps

WIDTH = 256

did = {"jit": 0}
kept = {}


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


STEPS = {"init": run_init, "jit": run_jit, "wait": None}


def truth():
    return {"api": "jax", "version": jax.__version__, "did": did}


if __name__ == "__main__":
    steps.run(STEPS, truth)
