# Allocates by 64 paths of functions and generators, in three threads, at several depths; each path has a size of its own.
# An eighth is kept. The functions are made anew again and again, and the memory of the old ones is reused.
#
#   moving.py LIBCUDART CALLS
#
# CALLS are those of each thread. Prints the number of allocations of each path; ends at a line of input.
import ctypes
import json
import os
import random
import sys
import threading

RUNTIME = ctypes.CDLL(sys.argv[1])
RUNTIME.cudaFree.argtypes = [ctypes.c_void_p]
CALLS = int(sys.argv[2])
LEVELS = 6
AGAIN = 1000

SOURCE = """
def allocate(path):
    pointer = c_void_p()
    assert malloc(byref(pointer), c_size_t(512 * (path + 1))) == 0
    if keep() != 0:
        free(pointer)

def deeper(path, more):
    return deeper(path, more - 1) if more else start(path, path)
"""
LEVEL = """
def plain{0}(path, bits):
    {1}(path, bits >> 1)

def made{0}(path, bits):
    {1}(path, bits >> 1)
    yield

def drawn{0}(path, bits):
    for _ in made{0}(path, bits):
        pass
"""
for level in range(LEVELS):
    below = f"(drawn{level - 1} if bits & 1 else plain{level - 1})" if level else "(lambda path, _: allocate(path))"
    SOURCE += LEVEL.format(level, below)
SOURCE += f"""
def start(path, bits):
    (drawn{LEVELS - 1} if bits & 1 else plain{LEVELS - 1})(path, bits >> 1)
"""

counts = [0] * (1 << LEVELS)
lock = threading.Lock()


def run(seed):
    draw = random.Random(seed)
    own = [0] * len(counts)
    for number in range(CALLS):
        if number % AGAIN == 0:
            space = {"malloc": RUNTIME.cudaMalloc, "free": RUNTIME.cudaFree, "c_void_p": ctypes.c_void_p,
                     "c_size_t": ctypes.c_size_t, "byref": ctypes.byref,
                     "keep": lambda: draw.randrange(8)}
            exec(compile(SOURCE, "moving", "exec"), space)
        path = draw.randrange(len(own))
        space["deeper"](path, draw.randrange(4))
        own[path] += 1
    with lock:
        for path, count in enumerate(own):
            counts[path] += count


threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(counts), flush=True)
sys.stdin.readline()
