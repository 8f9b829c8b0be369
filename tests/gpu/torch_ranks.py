#!/usr/bin/env python3
"""A PyTorch program on two GPUs, and two processes that work together, a GPU for each.

    python3 torch_ranks.py STEP ...

It runs the steps in order. After each it prints one JSON line with what its allocators hold, as
torch_tensors.py does; so do the two processes, as lines rank0 and rank1.

    tensors  40 MiB on the first device, 80 MiB on the second
    peer     copies one to the other device
    reduce   two other processes reduce 64 MiB together, and stay
    train    two other processes train together for some steps, keep some outputs, and stay
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
import torch_tensors

MIB = 1 << 20
DEVICES = 2
STEPS_OF_TRAINING = 10

kept = {}


def run_tensors():
    for device in range(DEVICES):
        size = (device + 1) * 40 * MIB
        kept[device] = torch.ones(size, dtype=torch.uint8, device=f"cuda:{device}")


def run_peer():
    kept["copy"] = kept[0].to("cuda:1")
    for device in range(DEVICES):
        torch.cuda.synchronize(device)


def reduce(rank):
    tensor = torch.ones(16 * MIB, dtype=torch.float32, device="cuda")
    torch.distributed.all_reduce(tensor)
    torch.cuda.synchronize()
    return bool((tensor == DEVICES).all().item()), tensor


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
    if rank == 1:
        torch_tensors.run_leak(20)
    return True, (model, optimizer)


def rank_main(rank, work, store, said, go):
    torch.cuda.set_device(rank)
    if work is train:
        torch_tensors.run_history()
    torch.distributed.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=DEVICES)
    right, held = work(rank)
    said.put({"step": f"rank{rank}", "pid": os.getpid(), "right": right, **torch_tensors.truth()})
    go.wait()
    del held
    torch.distributed.destroy_process_group()


def run_ranks(work):
    context = torch.multiprocessing.get_context("spawn")
    said, kept["go"] = context.Queue(), context.Event()
    kept["store"] = tempfile.TemporaryDirectory()
    path = os.path.join(kept["store"].name, "store")
    kept["ranks"] = [
        context.Process(target=rank_main, args=(rank, work, path, said, kept["go"]), daemon=True)
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


STEPS = {
    "tensors": run_tensors,
    "peer": run_peer,
    "reduce": lambda: run_ranks(reduce),
    "train": lambda: run_ranks(train),
    "end": run_end,
    "wait": None,
}

if __name__ == "__main__":
    steps.run(STEPS, torch_tensors.truth)
