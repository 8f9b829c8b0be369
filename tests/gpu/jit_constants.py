#!/usr/bin/env python3
"""Arrays of NumPy become constants of each compiled version of a function, and stay with it.

    python3 jit_constants.py SECONDS

Its last line is JSON: the line that leaks, how many versions, and the bytes of their constants.
"""

import functools
import json
import os
import sys
import time

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS"] = "0"  # later versions pass constants as arguments

import jax
import jax.numpy as jnp
import numpy

import steps

WORDS = 1 << 20


@functools.partial(jax.jit, static_argnums=1)
def shifted(array, version):
    table = numpy.random.default_rng(version).random(WORDS, dtype=numpy.float32)
    return (array[version % 3] + table).sum()


def main():
    array = jnp.arange(3.0)
    shifted(array, 0).block_until_ready()
    versions = 0
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        versions += 1
        shifted(array, versions).block_until_ready()  # compiled
        time.sleep(0.3)
    leak = {"file": os.path.basename(__file__), "line": steps.line_of(__file__, "compiled")}
    print(json.dumps({"step": "loop", "leak": leak, "made": versions, "bytes": versions * 4 * WORDS}), flush=True)
    # What the interpreter gives back as it ends would no longer be held.
    os._exit(0)


main()
