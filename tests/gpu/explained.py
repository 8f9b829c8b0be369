#!/usr/bin/env python3
"""A program that leaks in a known way or not at all, for some seconds or until a line comes on standard input.

    python3 explained.py NAME [SECONDS]

When it has warmed up it prints a JSON line: its pid, and of a leak its file and line.

    training      a small transformer with AdamW, batches of several sizes
    transformers  Hugging Face's GPT-2
    lightning     Lightning's trainer
    ddp           DistributedDataParallel with NCCL, a group of one
    jax, cupy     arrays that are made and dropped
    jax_donated   a training of JAX whose state is donated to each step
    lru           a cache that is full puts out its oldest tensor
    pinned        batches in page-locked memory, which PyTorch caches
    plans         Fourier transforms of lengths that come at random: PyTorch caches their plans
    arena         chunks, each twice as large as the one before, until there is enough
    async_pool    the training, with the allocator cudaMallocAsync
    refused       more than there is, and then less
    threads       threads that multiply matrices of their own
    record_stream tensors that another stream uses
    warm_up       buffers of all sizes, fewer and fewer as time goes on
    one_off       weights, and nothing after them

    step          a tensor in each step, 10 a second
    list          a list keeps the output of each step
    hook          a hook of an nn.Module keeps activations
    graphs        a CUDA graph is captured in each iteration, and kept
    cublas        each thread makes a cuBLAS handle with a workspace, and ends without destroying it
    nccl          NCCL communicators are made, used and dropped
    beside        a tensor in each step, beside the cache that puts out its oldest
    slow          a tensor in 2 s
    pinned_kept   a page-locked block in each step
    jax_kept      an array of JAX in each step
"""

import collections
import ctypes
import glob
import inspect
import json
import os
import random
import sys
import tempfile
import threading
import time

MIB = 1 << 20
PAUSE_S = 0.05
WARM_UP_STEPS = 40

stop = threading.Event()
kept = []
choose = random.Random(1)


def wait_for_end():
    if len(sys.argv) > 2:
        time.sleep(float(sys.argv[2]))
    else:
        sys.stdin.readline()
    stop.set()


def buffer(size_bytes, **where):
    import torch

    return torch.empty(size_bytes, dtype=torch.uint8, **where or {"device": "cuda"})


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


def jax_donated():
    import jax as library
    import jax.numpy as jnp

    def loss(weights, batch):
        return jnp.square(batch @ weights).mean()

    def update(state, batch):
        weights, momentum = state
        momentum = 0.9 * momentum + library.grad(loss)(weights, batch)
        return weights - 1e-3 * momentum, momentum

    train = library.jit(update, donate_argnums=0)
    state = [(jnp.ones((1024, 1024)), jnp.zeros((1024, 1024)))]

    def step(number):
        state[0] = train(state[0], jnp.ones((64 + number % 3, 1024)))
        state[0][0].block_until_ready()

    return step


def cupy():
    import cupy as library

    return lambda number: (library.ones((4 + number % 4, MIB)) * 2).sum()


def lru():
    cache = collections.OrderedDict()

    def step(number):
        cache[number] = buffer((1 + number % 3) * MIB)
        if len(cache) > WARM_UP_STEPS // 2:
            cache.popitem(last=False)

    return step


def pinned():
    kept.extend(buffer(mib * MIB, pin_memory=True) for mib in (33, 5))
    return lambda number: buffer((1 + number % 7) * MIB, pin_memory=True).to("cuda", non_blocking=True)


def plans():
    import torch

    return lambda number: torch.fft.fft(torch.ones(100_000 + choose.randrange(32), device="cuda"))


def arena():
    def step(number):
        if number & (number - 1) == 0 and number < 1 << 9:
            kept.append(buffer((number + 1) * MIB))

    return step


def async_pool():
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
    return training()


def refused():
    import torch

    def step(number):
        try:
            buffer(1 << 50 if number % 20 == 0 else 64 * MIB)
        except torch.OutOfMemoryError:
            buffer(32 * MIB)

    return step


def threads():
    import torch

    def work(size):
        matrix = torch.ones((size, size), device="cuda")
        (matrix @ matrix).sum().item()

    def step(number):
        workers = [threading.Thread(target=work, args=(256 * (1 + (number + i) % 4),)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return step


def record_stream():
    import torch

    main, side = torch.cuda.current_stream(), torch.cuda.Stream()

    def step(number):
        with torch.cuda.stream(side):
            batch = buffer((1 + number % 5) * MIB).zero_()
        main.wait_stream(side)
        batch.record_stream(main)
        batch.add_(1)

    return step


def warm_up():
    def step(number):
        if choose.random() < 0.99**number:
            kept.append(buffer(choose.randrange(1, 8 * MIB)))
        buffer(MIB)

    return step


def one_off():
    kept.extend(buffer(choose.randrange(1, 8 * MIB)) for _ in range(100))
    return lambda number: kept[number % 100].zero_()


def keep_each_step():
    import torch

    def step(_):
        kept.append(torch.empty(MIB, device="cuda"))  # the leak
        time.sleep(0.1 - PAUSE_S)

    return step


def keep_arrays():
    import jax as library
    import jax.numpy as jnp

    double = library.jit(lambda array: array * 2)

    def step(_):
        kept.append(double(jnp.ones(MIB)).block_until_ready())  # the leak

    return step


def keep_beside_cache():
    import torch

    cache_step = lru()

    def step(number):
        cache_step(number)
        kept.append(torch.empty(MIB, device="cuda"))  # the leak

    return step


def keep_seldom():
    import torch

    def step(number):
        if number % 40 == 0:
            kept.append(torch.empty(MIB, device="cuda"))  # the leak

    return step


def keep_pinned():
    import torch

    def step(_):
        kept.append(torch.empty(MIB, dtype=torch.uint8, pin_memory=True))  # the leak

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
    one.__name__: one
    for one in (
        *(training, transformers, lightning, ddp, jax, jax_donated, cupy, lru),
        *(pinned, plans, arena, async_pool, refused, threads, record_stream, warm_up, one_off),
    )
}
LEAKS = {
    "step": keep_each_step,
    "beside": keep_beside_cache,
    "slow": keep_seldom,
    "pinned_kept": keep_pinned,
    "jax_kept": keep_arrays,
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
    threading.Thread(target=wait_for_end, daemon=True).start()


def main():
    name = sys.argv[1]
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
