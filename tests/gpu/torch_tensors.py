#!/usr/bin/env python3
"""A PyTorch program that prints the blocks of its caching allocator.

    python3 torch_tensors.py STEP ...

It runs the steps in order. After each it prints one JSON line with, for each device, the allocator's
statistics and all of its segments and blocks, as torch.cuda.memory_snapshot() has them; with history
also the Python frames of each block, innermost first. Nothing goes on while it waits.

    history   from here on PyTorch records who allocates
    device=N  what follows is on GPU N (1)
    train=N   N steps of a small transformer with AdamW (20)
    graphs    a captured forward and backward pass, replayed; its memory is in a private pool
    streams   tensors of two streams that use each other's (record_stream); some are freed but pending
    recorded  a captured loop whose blocks another stream uses (record_stream): they wait in the graph's pool
    cache=N   inference: keys and values of N steps (200), each joined to those before
    leak=N    a list keeps the output of each of N steps (50): the truth has the line and the bytes
    churn=N   N tensors of random sizes, every third stays (2000)
    init      nothing but a first tensor
    first     3 tensors of 32 MiB, one of them dropped (its segment stays cached)
    second    100 small tensors, one of 5 MiB, one of 64 MiB
    matmul    products in two precisions: cuBLAS wants memory of its own
    drop      drops the tensor of 64 MiB and empties the cache
    release   drops what is kept, and empties the cache
    oom       asks for more than there is, twice
    pace=N    steps of the training for N tenths of a second (100): the truth has when each of them ended
    hold=N    one tensor of N % of what is free (50)
    fill=N    tensors of N MiB (1024) into a list until there is no more memory: the truth has what PyTorch
              says of that, in words and numbers, and the line; then all but the last few are dropped
    wait      print the line, then read a line from standard input

PYTORCH_CUDA_ALLOC_CONF makes the segments expandable (expandable_segments:True), or the allocator
another one (backend:cudaMallocAsync), which has no blocks to show.
"""

import gc
import inspect
import os
import random
import time

import torch

import steps

KIB = 1 << 10
MIB = 1 << 20

kept = {}
facts = {}  # what steps found, for the truth
has_history = False


def tensor(size_bytes):
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def run_history():
    global has_history
    has_history = True
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python")


def run_device(number=1):
    torch.cuda.set_device(number)


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, 8, batch_first=True)
        self.norm = torch.nn.LayerNorm(width)
        self.wide = torch.nn.Linear(width, 4 * width)
        self.narrow = torch.nn.Linear(4 * width, width)

    def forward(self, value):
        attended, _ = self.attention(value, value, value, need_weights=False)
        value = self.norm(value + attended)
        return value + self.narrow(torch.nn.functional.gelu(self.wide(value)))


def make_model(width):
    return torch.nn.Sequential(*[Block(width) for _ in range(4)]).cuda()


def run_train(count=20):
    """The batches have several sizes, so that blocks are split and joined."""
    if "model" not in kept:
        torch.manual_seed(0)
        kept["model"] = make_model(512)
        kept["optimizer"] = torch.optim.AdamW(kept["model"].parameters())
    for step in range(count):
        batch = torch.randn(4 + step % 3, 256, 512, device="cuda")
        loss = kept["model"](batch).square().mean()
        loss.backward()
        kept["optimizer"].step()
        kept["optimizer"].zero_grad(set_to_none=True)
    kept["batch"] = batch


def run_graphs():
    model = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 64))
    model.cuda()
    batch = torch.randn(512, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # PyTorch asks for a few passes before a capture
        for _ in range(3):
            model.zero_grad(set_to_none=True)
            model(batch).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(batch)
        output.sum().backward()
    for _ in range(5):
        graph.replay()
    kept["graph"] = (graph, model, batch, output)


def run_streams():
    """What another stream used is freed at once, and is used again only when that stream is done:
    PyTorch looks when it allocates next, which it does not do after the last free here."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    made = []
    for number in range(8):
        with torch.cuda.stream(side):
            made.append(tensor((3 + number) * MIB))
            made.append(tensor((3 + number) * 10 * KIB))
        main.wait_stream(side)
        for value in made[-2:]:
            value.record_stream(main)
            value.add_(1)
    kept["streams"] = (side, made[:4])
    torch.cuda._sleep(10**7)
    del made[4:], value


def run_recorded():
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        for number in range(6):
            value = tensor((4 + number) * MIB)
            side.wait_stream(main)
            with torch.cuda.stream(side):
                value.zero_()
            main.wait_stream(side)
            value.record_stream(side)
            del value
    graph.replay()
    kept["recorded"] = (graph, side)


@torch.no_grad()
def run_cache(count=200):
    layers = [torch.nn.Linear(1024, 2048, device="cuda") for _ in range(4)]
    caches = kept["cache"] = [torch.empty(8, 0, 2048, device="cuda") for _ in layers]
    for _ in range(count):
        value = torch.randn(8, 1, 1024, device="cuda")
        for number, layer in enumerate(layers):
            caches[number] = torch.cat([caches[number], layer(value)], dim=1)


def run_pace(tenths=100):
    ends = [time.monotonic_ns()]
    while ends[-1] < ends[0] + tenths * 10**8:
        run_train(1)
        torch.cuda.synchronize()
        ends.append(time.monotonic_ns())
    facts["ends"] = ends


@torch.no_grad()
def run_leak(count=50):
    layer = torch.nn.Linear(1024, 1024, device="cuda")
    outputs = kept.setdefault("leak", [])
    batch = torch.randn(700, 1024, device="cuda")
    for _ in range(count):
        outputs.append(layer(batch))  # the leak
    lines, first = inspect.getsourcelines(run_leak.__wrapped__)
    facts["leak"] = dict(
        file=__file__,
        function="run_leak",
        line=first + next(i for i, line in enumerate(lines) if "# the leak" in line),
        tensors=len(outputs),
        requested_bytes=sum(output.untyped_storage().nbytes() for output in outputs),
    )


def run_churn(count=2000):
    choose = random.Random(1)
    recent = []
    for number in range(count):
        made = tensor(int(2 ** choose.uniform(0, 24)))
        if number % 3 == 0:
            kept.setdefault("churn", []).append(made)
        else:
            recent.append(made)
        if len(recent) > 64:
            recent.pop(choose.randrange(len(recent)))


def run_init():
    tensor(KIB)


def run_first():
    kept["first"] = [tensor(32 * MIB) for _ in range(3)]
    kept["first"].pop(1)


def run_second():
    kept["second"] = [tensor(size) for size in (*[KIB] * 100, 5 * MIB)]
    kept["dropped"] = tensor(64 * MIB)


def run_matmul():
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones((1024, 1024), dtype=dtype, device="cuda")
        kept["product"] = matrix @ matrix


def run_drop():
    kept.pop("dropped", None)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def run_release():
    kept.clear()
    facts.pop("leak", None)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def run_oom():
    for _ in range(2):
        try:
            tensor(1 << 40)
        except torch.OutOfMemoryError:
            continue
        raise RuntimeError("the GPU has a terabyte of memory")


def run_hold(percent=50):
    free, _ = torch.cuda.mem_get_info()
    kept["held"] = tensor(free * percent // 100)


def run_fill(size_mib=1024):
    filled = kept.setdefault("fill", [])
    try:
        while True:
            filled.append(tensor(size_mib * MIB))  # no more memory
    except torch.OutOfMemoryError as error:
        text = str(error)
    stats = torch.cuda.memory_stats()
    lines, first = inspect.getsourcelines(run_fill)
    facts["oom"] = dict(
        text=text,
        file=__file__,
        line=first + next(i for i, line in enumerate(lines) if "# no more memory" in line),
        requested=size_mib * MIB,
        tensors=len(filled),
        allocated=stats["allocated_bytes.all.current"],
        reserved=stats["reserved_bytes.all.current"],
        retries=stats["num_alloc_retries"],
        ooms=stats["num_ooms"],
        free=torch.cuda.mem_get_info()[0],
    )
    del filled[4:]
    tensor(KIB)


NAMES = "history device train graphs streams recorded cache pace leak churn init first second".split()
NAMES += "matmul drop release oom hold fill".split()
STEPS = {name: globals()[f"run_{name}"] for name in NAMES} | {"wait": None}

# The truth's key, and that of torch.cuda.memory_stats().
STATISTICS = {
    "allocated": "allocated_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "active": "active_bytes.all.current",
    "requested": "requested_bytes.all.current",
    "mallocs": "allocation.all.allocated",
    "frees": "allocation.all.freed",
    "out_of_memory": "num_ooms",
    "segments_allocated": "segment.all.allocated",
    "retries": "num_alloc_retries",
}

SEGMENT_KEYS = ("address", "total_size", "stream", "segment_type", "segment_pool_id", "is_expandable")
BLOCK_KEYS = ("address", "size", "requested_size", "state")


def block_of(block):
    said = {key: block[key] for key in BLOCK_KEYS}
    if has_history:
        frames = block.get("frames", [])
        said["frames"] = [[frame["name"], frame["filename"], frame["line"]] for frame in frames]
    return said


def segment_of(segment):
    blocks = [block_of(block) for block in segment["blocks"]]
    return {key: segment[key] for key in SEGMENT_KEYS} | {"blocks": blocks}


def truth():
    said = {"version": torch.__version__, "backend": torch.cuda.memory.get_allocator_backend()}
    said |= facts
    if not torch.cuda.is_initialized():
        return said
    torch.cuda.synchronize()
    said["monotonic_ns"] = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    segments = torch.cuda.memory_snapshot() if said["backend"] == "native" else []
    said["devices"] = []
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        held = [segment_of(segment) for segment in segments if segment["device"] == device]
        sums = {key: stats.get(name, 0) for key, name in STATISTICS.items()}
        said["devices"].append({"device": device, **sums, "segments": held})
    return said


if __name__ == "__main__":
    steps.run(STEPS, truth)
