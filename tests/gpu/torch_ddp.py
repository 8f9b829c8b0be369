#!/usr/bin/env python3
"""Distributed training on two GPUs, a process for each.

    python3 torch_ddp.py STEP ...

    ranks  two other processes train together for some steps, keep some outputs, and stay; each says as a
           line of its own, rank0 and rank1, what its allocator holds, as torch_tensors.py does
    end    those two end
    wait   print the line, then read a line from standard input
"""

import json
import os
import tempfile

import torch
import torch.distributed
import torch.multiprocessing

import steps
import torch_tensors

DEVICES = 2
STEPS_OF_TRAINING = 10

kept = {}


def train(rank):
    torch.manual_seed(rank)
    model = torch_tensors.make_model(512)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(STEPS_OF_TRAINING):
        batch = torch.randn(4 + step % 3, 256, 512, device="cuda")
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return model, optimizer


def rank_main(rank, store, said, go):
    torch.cuda.set_device(rank)
    torch_tensors.run_history()
    torch.distributed.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=DEVICES)
    training = train(rank)
    if rank == 1:
        torch_tensors.run_leak(20)
    said.put({"step": f"rank{rank}", "pid": os.getpid(), **torch_tensors.truth()})
    go.wait()
    del training
    torch.distributed.destroy_process_group()


def run_ranks():
    context = torch.multiprocessing.get_context("spawn")
    said, kept["go"] = context.Queue(), context.Event()
    kept["store"] = tempfile.TemporaryDirectory()
    path = os.path.join(kept["store"].name, "store")
    kept["ranks"] = [
        context.Process(target=rank_main, args=(rank, path, said, kept["go"]), daemon=True)
        for rank in range(DEVICES)
    ]
    for process in kept["ranks"]:
        process.start()
    for _ in kept["ranks"]:
        print(json.dumps(said.get(timeout=100)), flush=True)


def run_end():
    kept["go"].set()
    for process in kept["ranks"]:
        process.join(60)


if __name__ == "__main__":
    steps.run({"ranks": run_ranks, "end": run_end, "wait": None}, dict)
