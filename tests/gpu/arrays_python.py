#!/usr/bin/env python3
"""A JAX or CuPy program that allocates arrays in functions of its own.

    python3 arrays_python.py STEP ...

    jax, cupy   take them with that
    wait        print the line, then read a line from standard input
"""

import steps

MIB = 1 << 20

kept = []


def with_jax(mib):
    import jax.numpy as jnp

    return jnp.ones((mib, MIB), dtype=jnp.uint8).block_until_ready()


def with_cupy(mib):
    import cupy

    return cupy.ones((mib, MIB), dtype=cupy.uint8)


def run_jax():
    kept.extend(with_jax(mib) for mib in (40, 48))


def run_cupy():
    kept.extend(with_cupy(mib) for mib in (40, 48))


if __name__ == "__main__":
    table = {"jax": run_jax, "cupy": run_cupy, "wait": None}
    steps.run(table, lambda: {})
