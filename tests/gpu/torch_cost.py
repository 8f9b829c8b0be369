#!/usr/bin/env python3
"""A PyTorch program whose steps are timed, and whose calls are made one kind at a time.

    python3 torch_cost.py STEP ...

It runs the steps in order. After each it prints one JSON line, with what the last timed step took.

    train=N    N training steps of 50 small layers (256x256), which the Python thread is busy with: the
               median and the mean ms of one
    large=N    N training steps of a model that the GPU is busy with: the same
    pairs=N    N cached tensors of 4 KiB, each handed out and taken back: us a pair
    history=N  PyTorch keeps the history of its allocations: without stacks (0: none), Python's (1), all (2)
    give=N     N tensors of 4 KiB, then
    take=N     the last N of them are taken back
    malloc=N   N times cudaMalloc, then
    free=N     cudaFree of each
    launch=N   N launches of a kernel
    copy=N     N copies of 64 bytes to the GPU
    wait       print the line, then read a line from standard input

Each call of the last six is made below 15 Python frames, and what it uses is no longer in the caches.
"""

import ctypes
import functools
import statistics
import time

import torch

import steps

FRAMES = 15
EVICTED_BYTES = 4 << 20
MOST_CALLS = 1 << 12

last = {}
given = []
blocks = (ctypes.c_void_p * MOST_CALLS)()
room, other_room = bytearray(EVICTED_BYTES), bytearray(EVICTED_BYTES)


def tensor(size_bytes=4096):
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def timed_ms(count, step):
    times = []
    torch.cuda.synchronize()
    for _ in range(count):
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    last.update(ms=statistics.median(times), mean_ms=statistics.fmean(times))


@functools.cache
def small_step():
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(50)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    batch = torch.randn(128, 256, device="cuda")

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


@functools.cache
def large_step():
    from torch_tensors import Block

    model = torch.nn.Sequential(*[Block(2048) for _ in range(8)]).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        batch = torch.randn(16, 512, 2048, device="cuda", dtype=torch.bfloat16)
        model(batch).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def run_train(count=60):
    timed_ms(count, small_step())


def run_large(count=40):
    timed_ms(count, large_step())


def run_pairs(count=50_000):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        tensor()
    last["us"] = 1e6 * (time.perf_counter() - began) / count


def run_history(stacks=0):
    record = torch.cuda.memory._record_memory_history
    if stacks:
        record(stacks=("python", "all")[stacks - 1])
    else:
        record(None)


# ---- one call at a time --------------------------------------------------------


@functools.cache
def runtime():
    """The CUDA runtime that PyTorch has loaded."""
    with open("/proc/self/maps") as maps:
        return ctypes.CDLL(next(line.split()[-1] for line in maps if "/libcudart" in line))


def below(frames, call, count):
    if frames:
        return below(frames - 1, call, count)
    for number in range(count):
        room[:] = other_room  # what the call uses leaves the caches
        call(number)


def calls(make):
    """The step that makes calls; `make` returns a call, given its number."""

    def run(count=200):
        # The rest are two above this one, it, the innermost `below`, and two of the call.
        below(FRAMES - 6, make(), count)
        torch.cuda.synchronize()

    return run


def give():
    return lambda _: given.append(tensor())


def take():
    return lambda _: given.pop()


def malloc():
    function = runtime().cudaMalloc
    return lambda number: function(ctypes.byref(blocks, 8 * number), ctypes.c_size_t(4096))


def free():
    function = runtime().cudaFree
    return lambda number: function(ctypes.c_void_p(blocks[number]))


def launch():
    value = tensor()
    return lambda _: value.add_(1)


def copy():
    value, host = tensor(64), torch.empty(64, dtype=torch.uint8, pin_memory=True)
    return lambda _: value.copy_(host, non_blocking=True)


TIMED = {"train": run_train, "large": run_large, "pairs": run_pairs, "history": run_history}
CALLS = {function.__name__: calls(function) for function in (give, take, malloc, free, launch, copy)}

if __name__ == "__main__":
    torch.cuda.init()
    steps.run(TIMED | CALLS | {"wait": None}, lambda: last)
