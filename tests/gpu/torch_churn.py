#!/usr/bin/env python3
"""A PyTorch program that allocates and frees segments of GPU memory.

    python3 torch_churn.py STEP ...

    init       create the context
    churn=N    N times: a tensor of 32 MiB, dropped, and the cache emptied; and
               each fourth time through a layer's forward and backward pass
    wait       print the line, then read a line from standard input

With TORCH_CHURN_HISTORY in its environment, PyTorch keeps the history of its
allocations with such stacks.
"""

import os
import time

import torch

import steps

MIB = 1 << 20
said = {}


def run_init():
    history = os.environ.get("TORCH_CHURN_HISTORY")
    torch.cuda.init()
    if history:
        torch.cuda.memory._record_memory_history(stacks=history)
    said["layer"] = torch.nn.Linear(1024, 1024, device="cuda")
    torch.cuda.synchronize()


def churn(number):
    tensor = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    if number % 4 == 0:
        said["layer"](torch.ones(64, 1024, device="cuda")).sum().backward()
    del tensor
    torch.cuda.empty_cache()


def run_churn(count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for number in range(count):
        churn(number)
    torch.cuda.synchronize()
    said["us_per_segment"] = (time.perf_counter() - start) * 1e6 / count


def truth():
    return {"us_per_segment": said.get("us_per_segment")}


if __name__ == "__main__":
    steps.run({"init": run_init, "churn": run_churn, "wait": None}, truth)
