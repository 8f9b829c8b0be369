#!/usr/bin/env python3
"""A PyTorch program on two GPUs, or two processes that work together.

    python3 torch_devices.py STEP ...

It runs the steps in order. After each it prints one JSON line with the bytes
that the caching allocator has reserved on each device.

    tensors  40 MiB on the first device, 80 MiB on the second
    peer     copies one to the other device
    nccl     two other processes, one a device, reduce 64 MiB together; each says
             what it has, as a line of its own, and stays
    end      those two end
    wait     print the line, then read a line from standard input
"""

import json
import os
import tempfile

import torch
import torch.distributed
import torch.multiprocessing

import steps

MIB = 1 << 20
DEVICES = 2

kept = {}


def run_tensors():
    for device in range(DEVICES):
        size = (device + 1) * 40 * MIB
        kept[device] = torch.ones(size, dtype=torch.uint8, device=f"cuda:{device}")


def run_peer():
    kept["copy"] = kept[0].to("cuda:1")
    for device in range(DEVICES):
        torch.cuda.synchronize(device)


def reduce(rank, store, said, go):
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{store}", rank=rank, world_size=DEVICES
    )
    tensor = torch.ones(16 * MIB, dtype=torch.float32, device="cuda")
    torch.distributed.all_reduce(tensor)
    torch.cuda.synchronize()
    right = bool((tensor == DEVICES).all().item())
    said.put({"rank": rank, "pid": os.getpid(), "right": right, "reserved": reserved()})
    go.wait()
    torch.distributed.destroy_process_group()


def run_nccl():
    context = torch.multiprocessing.get_context("spawn")
    said, kept["go"] = context.Queue(), context.Event()
    kept["store"] = tempfile.TemporaryDirectory()
    path = os.path.join(kept["store"].name, "store")
    kept["ranks"] = [
        context.Process(target=reduce, args=(rank, path, said, kept["go"]), daemon=True)
        for rank in range(DEVICES)
    ]
    for process in kept["ranks"]:
        process.start()
    for _ in kept["ranks"]:
        line = said.get(timeout=100)
        print(json.dumps({"step": f"rank{line['rank']}", **line}), flush=True)


def run_end():
    kept["go"].set()
    for process in kept["ranks"]:
        process.join(60)


STEPS = {"tensors": run_tensors, "peer": run_peer, "nccl": run_nccl, "end": run_end, "wait": None}


def reserved():
    return [torch.cuda.memory_reserved(device) for device in range(DEVICES)]


def truth():
    return {"api": "torch", "version": torch.__version__, "reserved": reserved()}


if __name__ == "__main__":
    steps.run(STEPS, truth)
