#!/usr/bin/env python3
"""A PyTorch program that prints its caching allocator's statistics.

    python3 torch_alloc.py STEP ...

It runs the steps in order. After each it prints one JSON line with the caching
allocator's own figures: bytes reserved, and the segments it has got from
cudaMalloc and given back to cudaFree since the start, and those it holds now.
Other allocators than its own, which PYTORCH_CUDA_ALLOC_CONF chooses, say less.

    init     create the context
    first    3 tensors of 32 MiB, one of them dropped (its segment stays cached)
    second   100 small tensors, one of 5 MiB, one of 64 MiB
    matmul   products in two precisions: cuBLAS wants memory of its own
    release  drop the tensor of 64 MiB and empty the cache
    wait     print the line, then read a line from standard input
"""

import torch

import steps

KIB = 1024
MIB = 1024 * KIB

kept = {}


def tensor(size_bytes):
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def run_init():
    torch.cuda.init()
    torch.cuda.synchronize()


def run_first():
    kept["first"] = [tensor(32 * MIB) for _ in range(3)]
    kept["first"].pop(1)


def run_second():
    kept["small"] = [tensor(KIB) for _ in range(100)]
    kept["middle"] = tensor(5 * MIB)
    kept["large"] = tensor(64 * MIB)


def run_matmul():
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones((1024, 1024), dtype=dtype, device="cuda")
        kept["product"] = matrix @ matrix
    torch.cuda.synchronize()


def run_release():
    kept.pop("large", None)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


STEPS = {
    "init": run_init,
    "first": run_first,
    "second": run_second,
    "matmul": run_matmul,
    "release": run_release,
    "wait": None,
}


def segments():
    return [
        {
            "address": f"{segment['address']:#x}",
            "bytes": segment["total_size"],
            "device": segment["device"],
        }
        for segment in torch.cuda.memory_snapshot()
    ]


def truth():
    """The statistics are queried only once CUDA runs: the query starts it."""
    said = {"api": "torch", "version": torch.__version__}
    if torch.cuda.is_initialized():
        stats = torch.cuda.memory_stats()
        said["reserved"] = torch.cuda.memory_reserved()
        said["allocated"] = torch.cuda.memory_allocated()
        for key in ("allocated", "freed", "current"):
            said[f"segments_{key}"] = stats.get(f"segment.all.{key}", 0)
        said["alloc_retries"] = stats.get("num_alloc_retries", 0)
        said["backend"] = torch.cuda.memory.get_allocator_backend()
        if said["backend"] == "native":
            said["segments"] = segments()
    return said


if __name__ == "__main__":
    steps.run(STEPS, truth)
