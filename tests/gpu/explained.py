#!/usr/bin/env python3
"""A program that goes on until a line comes on standard input, and leaks in a known way or not at all.

    python3 explained.py NAME

When it has warmed up it prints a JSON line: its pid, and of a leak its function and line.

    training      a small transformer with AdamW, batches of several sizes
    transformers  Hugging Face's GPT-2
    lightning     Lightning's trainer
    ddp           DistributedDataParallel with NCCL, a group of one
    jax, cupy     arrays that are made and dropped
    lru           a cache that is full puts out its oldest tensor

    list          a list keeps the output of each step
    hook          a hook of an nn.Module keeps activations
    graphs        a CUDA graph is captured in each iteration, and kept
    cublas        each thread makes a cuBLAS handle with a workspace, and ends without destroying it
    nccl          NCCL communicators are made, used and dropped
"""

import collections
import ctypes
import glob
import inspect
import json
import os
import sys
import tempfile
import threading
import time

MIB = 1 << 20
PAUSE_S = 0.05
WARM_UP_STEPS = 40

stop = threading.Event()
kept = []


def read_stop():
    sys.stdin.readline()
    stop.set()


def torch_step():
    import torch
    import torch_tensors

    model = torch_tensors.make_model(256)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(number):
        batch = torch.randn(4 + number % 3, 128, 256, device="cuda")
        output = model(batch)
        output.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return output

    return model, step


def training():
    _, step = torch_step()
    return step


def transformers():
    import torch
    import train_libraries

    model, optimizer = train_libraries.gpt2(n_layer=2, n_embd=256, n_head=4, vocab_size=1000)

    def step(number):
        batch = torch.randint(0, 1000, (2, 64 + number % 64), device="cuda")
        train_libraries.training_step(model, optimizer, batch)

    return step


def lightning():
    import lightning as L
    import torch
    import train_libraries

    class Net(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(512, 512)

        def training_step(self, batch, number):
            time.sleep(PAUSE_S)
            if number == WARM_UP_STEPS:
                say(None)
            self.trainer.should_stop = stop.is_set()
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    with tempfile.TemporaryDirectory() as folder:
        options = {"max_epochs": 10, "min_epochs": 0, "default_root_dir": folder}
        train_libraries.fit(Net(), torch.randn(100_000, 512), 16, **options)


def ddp():
    import torch

    store = tempfile.NamedTemporaryFile()
    torch.distributed.init_process_group("nccl", init_method=f"file://{store.name}", rank=0, world_size=1)
    kept.append(store)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda(), device_ids=[0])
    optimizer = torch.optim.Adam(model.parameters())

    def step(number):
        model(torch.randn(16 + number % 5, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def jax():
    import jax as library
    import jax.numpy as jnp

    double = library.jit(lambda array: array * 2)
    return lambda number: double(jnp.ones((4 + number % 4, MIB))).block_until_ready()


def cupy():
    import cupy as library

    return lambda number: (library.ones((4 + number % 4, MIB)) * 2).sum()


def lru():
    import torch

    cache = collections.OrderedDict()

    def step(number):
        cache[number] = torch.empty((1 + number % 3) * MIB, dtype=torch.uint8, device="cuda")
        if len(cache) > WARM_UP_STEPS // 2:
            cache.popitem(last=False)

    return step


def keep_outputs():
    _, step = torch_step()

    def keep(number):
        kept.append(step(number).detach() * 2)  # the leak

    return keep


def keep_activations():
    model, step = torch_step()

    def hook(module, inputs, output):
        kept.append(output.detach().clone())  # the leak

    model[0].wide.register_forward_hook(hook)
    return step


def capture_graphs():
    import torch

    layer = torch.nn.Linear(512, 512).cuda()
    batch = torch.randn(64, 512, device="cuda")
    with torch.no_grad():
        layer(batch)

    @torch.no_grad()
    def capture(number):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = layer(batch)  # the leak
        graph.replay()
        kept.append((graph, output))

    return capture


def library_of_torch(name):
    import torch

    torch.ones(1, device="cuda")
    folder = os.path.dirname(os.path.dirname(torch.__file__))
    (path,) = sorted(glob.glob(f"{folder}/nvidia/**/{name}.so.*", recursive=True))[:1]
    return ctypes.CDLL(path)


def cublas_handles():
    library = library_of_torch("libcublas")

    def work():
        handle = ctypes.c_void_p()
        assert library.cublasCreate_v2(ctypes.byref(handle)) == 0  # the leak

    def step(_):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        time.sleep(4 * PAUSE_S)

    return step


def nccl_communicators():
    library = library_of_torch("libnccl")

    def step(_):
        communicator = ctypes.c_void_p()
        assert library.ncclCommInitAll(ctypes.byref(communicator), 1, None) == 0  # the leak
        # Each takes a hundred megabytes.
        time.sleep(50 * PAUSE_S)

    return step


CLEAN = {
    one.__name__: one for one in (training, transformers, lightning, ddp, jax, cupy, lru)
}
LEAKS = {
    "list": keep_outputs,
    "hook": keep_activations,
    "graphs": capture_graphs,
    "cublas": cublas_handles,
    "nccl": nccl_communicators,
}


def planted(function):
    """Where a program leaks."""
    lines, first = inspect.getsourcelines(function)
    place = next(index for index, line in enumerate(lines) if "# the leak" in line)
    return {"file": os.path.basename(__file__), "line": first + place}


def say(leak):
    print(json.dumps({"step": "loop", "pid": os.getpid(), "leak": leak}), flush=True)


def main():
    name = sys.argv[1]
    threading.Thread(target=read_stop, daemon=True).start()
    function = (CLEAN | LEAKS)[name]
    step = function()
    if step is None:
        return
    leak = planted(function) if name in LEAKS else None
    warm_up = WARM_UP_STEPS if name in CLEAN else 3
    for number in range(10**9):
        if number == warm_up:
            say(leak)
        if stop.is_set():
            return
        step(number)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
