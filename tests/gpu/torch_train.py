#!/usr/bin/env python3
"""A PyTorch program that trains a small model and counts its launches.

    python3 torch_train.py STEP ...

It runs the steps in order. After each it prints one JSON line.

    init         create the context and the model
    train[=N]    N (default 10) training steps: forward, backward, Adam
    compiled[=N] N (default 10) calls of a function that torch.compile made
    triton[=N]   N (default 10) launches of a Triton kernel
    graph[=N]    a captured graph of that Triton kernel, launched N (default 23) times
    profiled[=N] N (default 10) each of train, compiled and triton, under
                 torch.profiler; what it saw in the line
    wait         print the line, then read a line from standard input
"""

import collections
import json
import os
import tempfile
import time

import torch
import triton
import triton.language as tl

import steps

LAYERS = 50
WIDTH = 64
ROWS = 128

did = collections.Counter()
last = {}  # of the last step only
kept = {}


@triton.jit
def gpuprobe_axpy(x, y, count, block: tl.constexpr):
    index = tl.program_id(0) * block + tl.arange(0, block)
    inside = index < count
    tl.store(y + index, 2 * tl.load(x + index, inside) + tl.load(y + index, inside), inside)


def layers():
    for _ in range(LAYERS):
        yield torch.nn.Linear(WIDTH, WIDTH)
        yield torch.nn.ReLU()


def mixed(x, y):
    """Operations that torch.compile fuses into a kernel or two."""
    z = torch.nn.functional.gelu(x) * torch.sigmoid(y)
    return z + z.sum(dim=-1, keepdim=True)


def run_init():
    torch.manual_seed(0)
    kept["model"] = torch.nn.Sequential(*layers()).cuda()
    kept["optimizer"] = torch.optim.Adam(kept["model"].parameters())
    kept["input"] = torch.randn((ROWS, WIDTH), device="cuda")
    kept["other"] = torch.randn((ROWS, WIDTH), device="cuda")
    kept["compiled"] = torch.compile(mixed, dynamic=False)
    torch.cuda.synchronize()


def train_once():
    kept["optimizer"].zero_grad()
    torch.nn.functional.mse_loss(kept["model"](kept["input"]), kept["other"]).backward()
    kept["optimizer"].step()


def run_train(count=10):
    for _ in range(count):
        train_once()
        torch.cuda.synchronize()
    did["train"] += count


def run_compiled(count=10):
    for _ in range(count):
        kept["result"] = kept["compiled"](kept["input"], kept["other"])
    torch.cuda.synchronize()
    did["compiled"] += count


def launch_triton():
    count = kept["input"].numel()
    gpuprobe_axpy[(triton.cdiv(count, 1024),)](kept["input"], kept["other"], count, block=1024)


def run_triton(count=10):
    for _ in range(count):
        launch_triton()
    torch.cuda.synchronize()
    did["triton"] += count


def run_graph(count=23):
    """The kernel has been compiled: a launch in a capture must not load it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            launch_triton()
    for _ in range(count):
        graph.replay()
    torch.cuda.synchronize()
    did["graph"] += count
    did["triton_captured"] += 5
    kept["graph"] = graph


def kernels_of(profiler):
    """Launches by name, which the profiler has demangled."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8", errors="replace") as file:
            events = json.load(file)["traceEvents"]
    return collections.Counter(event["name"] for event in events if event.get("cat") == "kernel")


def run_profiled(count=10):
    """The profiler drops records that begin or end too near its own start and end."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        time.sleep(0.1)
        run_train(count)
        run_compiled(count)
        run_triton(count)
        time.sleep(0.1)
    last["kernels"] = kernels_of(profiler)


STEPS = {
    "init": run_init,
    "train": run_train,
    "compiled": run_compiled,
    "triton": run_triton,
    "graph": run_graph,
    "profiled": run_profiled,
    "wait": None,
}


def truth():
    said = {"api": "torch", "version": torch.__version__, "did": did, **last}
    last.clear()
    return said


if __name__ == "__main__":
    steps.run(STEPS, truth)
