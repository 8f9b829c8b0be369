#!/usr/bin/env python3
"""A PyTorch program that prints the lines that hold its memory, or that copy.

    python3 torch_python.py STEP ...

It runs the steps in order. After each it prints one JSON line with each segment that the caching
allocator holds: its bytes, and the Python frames that PyTorch's own history has of the call that got
it, innermost first; and the copies: line, direction, count, bytes, and the beginning of the advice.

    work      tensors from functions of many kinds, and a training step
    copies    results that are read one by one, and batches from pageable and from pinned memory
    wait      print the line, then read a line from standard input
"""

import functools
import threading

import torch

import steps

MIB = 1 << 20
# Segments of large tensors are multiples of this.
ROUND = 2 * MIB

kept = []
copies = []


def tensor(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def nested():
    def inner(mib):
        kept.append(tensor(mib))

    inner(24)
    inner(
        26
    )


def generate():
    for mib in (28, 30):
        yield tensor(mib)


def doubled(function):
    @functools.wraps(function)
    def wrapper(mib):
        return [function(mib), function(mib + 2)]

    return wrapper


@doubled
def decorated(mib):
    return tensor(mib)


class Holder:
    def __init__(self, mib):
        self.first = tensor(mib)
        self.second = self.make(mib)

    def make(self, mib):
        return (lambda size: tensor(size))(mib + 2)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        ctx.save_for_backward(value)
        return value * value

    @staticmethod
    def backward(ctx, gradient):
        (value,) = ctx.saved_tensors
        kept.append(tensor(50))
        return 2 * value * gradient


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(2048, 4096, device="cuda")
        self.narrow = torch.nn.Linear(4096, 2048, device="cuda")

    def forward(self, value):
        return self.narrow(torch.nn.functional.gelu(self.wide(value)))


def train():
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    value = torch.randn(4096, 2048, device="cuda")
    Square.apply(model(value)).sum().backward()
    optimizer.step()
    kept.extend((model, optimizer, value))


def run_work():
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python")
    nested()
    kept.extend(generate())
    kept.extend(decorated(32))
    kept.append(Holder(36))
    kept.extend([tensor(mib) for mib in (40, 42)])
    worker = threading.Thread(target=lambda: kept.append(tensor(44)))
    worker.start()
    worker.join()
    kept.extend(sorted([46, 48], key=lambda mib: kept.append(tensor(mib)) or mib) and [])
    exec(compile("kept.append(tensor(52))", "<made>", "exec"), {"kept": kept, "tensor": tensor})
    train()
    torch.cuda.synchronize()


def run_copies(count=100):
    results, batch = torch.ones(count, device="cuda"), torch.ones(MIB, dtype=torch.uint8)
    pinned = batch.pin_memory()
    for result in results:
        result.item()  # read
        batch.to("cuda")  # sent
        pinned.to("cuda", non_blocking=True)  # sent pinned
    for mark, direction, size, advice in (
        ("read", "D2H", 4, "each waits for the GPU"),
        ("sent", "H2D", MIB, "page-locked memory"),
        ("sent pinned", "H2D", MIB, None),
    ):
        copies.append((steps.line_of(__file__, mark), direction, count, count * size, advice))


STEPS = {"work": run_work, "copies": run_copies, "wait": None}


def segments():
    snapshot = torch.cuda.memory._snapshot()
    got = {}
    for trace in snapshot["device_traces"]:
        for entry in trace:
            if entry["action"] == "segment_alloc":
                got[entry["addr"]] = entry["frames"]
    held = []
    for segment in snapshot["segments"]:
        frames = got.get(segment["address"], [])
        lines = [[frame["name"], frame["filename"], frame["line"]] for frame in frames]
        held.append({"bytes": segment["total_size"], "frames": lines})
    return held


def truth():
    return {"version": torch.__version__, "segments": segments() if kept else [], "copies": copies}


if __name__ == "__main__":
    steps.run(STEPS, truth)
