#!/usr/bin/env python3
"""What a PyTorch step costs in the first second after gpuprobe has attached.

    sudo scripts/bench/first_second.py GPUPROBE [GPUPROBE...]

For hosts with several GPUs, where gpuprobe probes the driver's queries for the current device for a while. Needs
PyTorch and a GPU. Prints milliseconds per step of a small model: untraced, in the first second, later.
"""

import os
import statistics
import subprocess
import sys
import threading
import time

ROUNDS = 2
WINDOW_S = 0.25
WINDOWS_A_SECOND = 4


def make_step():
    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(40)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    samples = torch.randn(8, 64, device="cuda")

    def step():
        optimizer.zero_grad()
        model(samples).sum().backward()
        optimizer.step()
        torch.cuda.synchronize()

    return step


def windows(step, count):
    """Milliseconds per step in each of `count` windows."""
    measured = []
    for _ in range(count):
        begun, steps = time.monotonic(), 0
        while time.monotonic() < begun + WINDOW_S:
            step()
            steps += 1
        measured.append((time.monotonic() - begun) / steps * 1e3)
    return measured


def traced(step, gpuprobe):
    command = [gpuprobe, "--memleak", "--tensors", "off", "--stacks", "off", "--pid", str(os.getpid())]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    attached = threading.Thread(target=tracer.stderr.readline, daemon=True)
    attached.start()
    while attached.is_alive():
        step()
    measured = windows(step, 3 * WINDOWS_A_SECOND)
    tracer.terminate()
    while tracer.poll() is None:
        step()
    return measured


def main(gpuprobes):
    if not gpuprobes:
        sys.exit(__doc__)
    step = make_step()
    windows(step, 2 * WINDOWS_A_SECOND)
    for _ in range(ROUNDS):
        for gpuprobe in gpuprobes:
            untraced = statistics.median(windows(step, 2 * WINDOWS_A_SECOND))
            measured = traced(step, gpuprobe)
            first = statistics.mean(measured[:WINDOWS_A_SECOND])
            later = statistics.median(measured[WINDOWS_A_SECOND:])
            print(
                f"{gpuprobe}: untraced {untraced:.2f} ms, first second {first:.2f} ms"
                f" ({first / untraced:.2f}), later {later:.2f} ms ({later / untraced:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
