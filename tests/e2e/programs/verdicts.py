"""A program that goes on in steps, and leaks in one line or not at all: verdicts.py FOLDER NAME SECONDS.

FOLDER has the stand-in libraries. A function below is a program, which yields after each step. It prints the number of
its line with `# the leak`, 0 if it has none, when CUDA is up.
"""

import collections
import ctypes
import inspect
import random
import sys
import threading
import time

PAUSE_S, MIB = 0.05, 1 << 20  # seconds, bytes
IMAGE = b"STANDIN KERNELS\nunit\ntable=1048576\n"

folder, name, seconds = sys.argv[1:]
cuda, driver, fft = (ctypes.CDLL(f"{folder}/{file}") for file in ("libcudart.so.12", "libcuda.so.1", "libcufft.so.12"))
choose = random.Random(1)
made = ctypes.c_void_p()
out, size = ctypes.byref(made), ctypes.c_size_t


def check(error):
    assert error == 0, error


def block(mib):
    check(cuda.cudaMalloc(out, size(mib * MIB)))
    return ctypes.c_void_p(made.value)


def free(address):
    check(cuda.cudaFree(address))


class Kept:
    """A block that is freed with the last reference to it, at the latest when the interpreter ends."""

    def __init__(self, address, cuda_free=cuda.cudaFree):
        self.address, self.cuda_free = ctypes.c_void_p(address), cuda_free

    def __del__(self):
        self.cuda_free(self.address)


kept = []


def batches():
    while True:
        for batch in [block(choose.randint(1, 8)) for _ in range(3)]:
            free(batch)
        yield


def lru():
    cache = collections.deque()
    while True:
        cache.append(block(choose.randint(1, 3)))
        if len(cache) > 20:
            free(cache.popleft())
        yield


def lru_freed():
    while True:
        kept.append(Kept(block(choose.randint(1, 3)).value))
        del kept[:-20]
        yield


def pinned_cache():
    for step in range(10**9):
        if step < 60 and step & (step - 1) == 0:
            check(cuda.cudaMallocHost(out, size((step + 1) * MIB)))
        yield


def plan_cache():
    plans = {}
    while True:
        length = choose.randint(1000, 1031)
        if length not in plans:
            check(fft.cufftPlan1d(out, length, 0x29, 1))
            plans[length] = made.value
        yield


def arena():
    for step in range(10**9):
        if step & (step - 1) == 0 and step < 512:
            block(step + 1)
        yield


def async_pool():
    while True:
        check(cuda.cudaMallocAsync(out, size(choose.randint(1, 8) * MIB), None))
        check(cuda.cudaFreeAsync(made, None))
        yield


def refused():
    while True:
        assert cuda.cudaMalloc(out, size(1 << 50)) != 0
        free(block(1))
        yield


def threads():
    def work():
        own = ctypes.c_void_p()
        check(cuda.cudaMalloc(ctypes.byref(own), size(2 * MIB)))
        free(own)

    while True:
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        yield


def record_stream():
    """Another stream has used a block: it is free when that is done, some steps later."""
    pending = []
    while True:
        pending.append(block(2))
        while len(pending) > choose.randint(1, 12):
            free(pending.pop(choose.randrange(len(pending))))
        yield


def warm_up():
    for step in range(10**9):
        if choose.random() < 0.99**step:
            block(choose.randint(1, 8))
        yield


def warm_up_freed():
    for step in range(10**9):
        if choose.random() < 0.99**step:
            kept.append(Kept(block(choose.randint(1, 8)).value))
        yield


def one_off():
    for _ in range(100):
        block(choose.randint(1, 8))
    while True:
        yield


def each_step():
    while True:
        check(cuda.cudaMalloc(out, size(MIB)))  # the leak
        yield


def each_step_freed():
    while True:
        check(cuda.cudaMalloc(out, size(MIB)))  # the leak
        kept.append(Kept(made.value))
        yield


def beside_cache():
    for _ in lru():
        check(cuda.cudaMalloc(out, size(MIB)))  # the leak
        yield


def slow():
    for step in range(10**9):
        if step % 40 == 0:
            check(cuda.cudaMalloc(out, size(MIB)))  # the leak
        yield


def pinned():
    while True:
        check(cuda.cudaMallocHost(out, size(MIB)))  # the leak
        yield


def streams():
    while True:
        check(cuda.cudaStreamCreate(out))  # the leak
        yield


def events():
    while True:
        check(cuda.cudaEventCreate(out))  # the leak
        yield


def captured(stream, allocate):
    check(cuda.cudaStreamBeginCapture(stream, 0))
    allocate()
    check(cuda.cudaStreamEndCapture(stream, out))
    return ctypes.c_void_p(made.value)


def executables():
    check(cuda.cudaStreamCreate(out))
    graph = captured(ctypes.c_void_p(made.value), lambda: None)
    while True:
        check(cuda.cudaGraphInstantiate(out, graph, ctypes.c_uint64(0)))  # the leak
        yield


def graphs():
    check(cuda.cudaStreamCreate(out))
    stream = ctypes.c_void_p(made.value)

    def allocate():
        check(cuda.cudaMallocAsync(out, size(MIB), stream))  # the leak

    while True:
        check(cuda.cudaGraphInstantiate(out, captured(stream, allocate), ctypes.c_uint64(0)))
        check(cuda.cudaGraphLaunch(made, stream))
        check(cuda.cudaGraphExecDestroy(made))
        yield


def modules():
    while True:
        check(driver.cuModuleLoadData(out, IMAGE))  # the leak
        yield


def libraries():
    while True:
        check(driver.cuLibraryLoadData(out, IMAGE, None, None, 0, None, None, 0))  # the leak
        yield


def contexts():
    while True:
        check(driver.cuCtxCreate_v2(out, 0, 0))  # the leak
        check(driver.cuCtxPopCurrent_v2(out))
        yield


def plans():
    while True:
        check(fft.cufftPlan1d(out, 1000, 0x29, 1))  # the leak
        yield


def leak_of(program):
    lines, first = inspect.getsourcelines(program)
    return next((first + i for i, line in enumerate(lines) if "# the leak" in line), 0)


free(block(1))
print(leak_of(globals()[name]), flush=True)
end = time.monotonic() + float(seconds)
for _ in globals()[name]():
    if time.monotonic() > end:
        break
    time.sleep(PAUSE_S)
