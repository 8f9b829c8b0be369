"""Checks of frameworks' memory: their own allocators' numbers."""

import os

from expect import compare_frame, compare_torch
from expect_kinds import MIB, allocations_of, kind_bytes, process_of
from frameworks import SLOW_SECONDS, environment, is_missing

CONF = "PYTORCH_CUDA_ALLOC_CONF"
TORCH_STEPS = ("init", "wait", "first", "second", "wait", "matmul", "release", "wait")
# Kinds of memory of a framework's pool below its own allocator.
POOLED = ("device", "vmm", "async")


def traced_waits(bench, command, env=None):
    """Yields (line, report) at each wait of a program that gpuprobe started."""
    tracer = bench.trace("--", *command, env=env)
    waits = command.count("wait")
    for number in range(1, waits + 1):
        after = tracer.truth("wait", number, SLOW_SECONDS)
        report = tracer.fresh_report()
        bench.all_equal(compare_frame(report))
        yield after, report
        tracer.go()
    bench.equal("exit status", 0, tracer.wait())
    tracer.finish()


def torch_waits(bench, conf=None):
    env = os.environ | ({CONF: conf} if conf else {})
    return traced_waits(bench, bench.torch(*TORCH_STEPS), env)


def show_kinds(bench, report, pid):
    process = process_of(report, pid)
    kinds = ", ".join(
        f"{kind} {total['bytes'] / MIB:.2f} MiB in {total['allocations']}"
        for kind, total in process.get("kinds", {}).items()
    )
    bench.figure(bench.label, f"{kinds}; nvml {process.get('nvml')}")


def check_torch_plain(bench):
    """Allocations at the driver are made by other libraries, past the cache."""
    for after, report in torch_waits(bench):
        bench.all_equal(compare_torch(report, after))
        others = sum(
            a["bytes"]
            for a in allocations_of(process_of(report, after["pid"]))
            if a["kind"] == "device" and a["api"] == "cuMemAlloc_v2"
        )
        device = kind_bytes(report, after["pid"], "device")
        bench.equal("device = reserved + other libraries'", after["reserved"] + others, device)
    show_kinds(bench, report, after["pid"])


def check_torch_expandable(bench):
    for after, report in torch_waits(bench, "expandable_segments:True"):
        bench.equal("vmm = reserved", after["reserved"], kind_bytes(report, after["pid"], "vmm"))
        bench.equal("cudaMalloc calls", None, report["memleak"]["calls"].get("cudaMalloc"))
    show_kinds(bench, report, after["pid"])


def check_torch_async(bench):
    """The driver rounds what it hands out up to 512 bytes; the tensors are multiples."""
    for after, report in torch_waits(bench, "backend:cudaMallocAsync"):
        bench.equal("backend", "cudaMallocAsync", after["backend"])
        used = kind_bytes(report, after["pid"], "async")
        bench.equal("async = allocated", after["allocated"], used)
        pools = process_of(report, after["pid"]).get("pools", [])
        bench.equal("used of all pools", used, sum(pool["used_bytes"] for pool in pools))
    show_kinds(bench, report, after["pid"])


def check_cupy_memory(bench):
    if is_missing(bench, "cupy"):
        return
    steps = ("init", "wait", "take", "wait", "drop", "wait", "release", "wait")
    command = bench.script("cupy_pool.py", *steps)
    for after, report in traced_waits(bench, command, environment(bench)):
        got = kind_bytes(report, after["pid"], "device")
        bench.equal("device = total of the pool", after["total"], got)
    show_kinds(bench, report, after["pid"])


def check_jax_memory(bench):
    """XLA reports the bytes that its pool took from the driver, or only those in use."""
    if is_missing(bench, "jax"):
        return
    command = bench.script("jax_memory.py", "init", "wait", "take", "wait", "drop", "wait")
    for after, report in traced_waits(bench, command, environment(bench)):
        stats = after["stats"]
        held = kind_bytes(report, after["pid"], *POOLED)
        pool = stats.get("pool_bytes")
        least = stats.get("bytes_in_use", 0) if pool is None else pool
        bench.equal(f"{held} B are at least the {least} B of its allocator", True, held >= least)
        bench.figure(bench.label, f"held {held}, its own: {stats}")
    show_kinds(bench, report, after["pid"])


def by_device(process):
    return {row["device"]: row["bytes"] for row in process.get("devices", [])}


def check_devices(bench):
    """Each GPU has the memory that PyTorch reserved there, and NCCL's imports are not counted."""
    import torch

    if torch.cuda.device_count() < 2:
        bench.figure(bench.label, "one GPU on this machine: NOT CHECKED")
        return
    steps = ("tensors", "wait", "peer", "wait", "nccl", "wait", "end")
    command = bench.script("torch_devices.py", *steps)
    tracer = bench.trace("--", *command)
    for number in (1, 2, 3):
        after = tracer.truth("wait", number, SLOW_SECONDS)
        report = tracer.fresh_report()
        compare_devices(bench, report, after)
        for rank in (0, 1) if number == 3 else ():
            compare_rank(bench, report, tracer.truth(f"rank{rank}"))
        tracer.go()
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    _, report = tracer.finish()
    bench.all_equal(compare_frame(report))
    bench.equal("unknown_frees", 0, report["memleak"]["unknown_frees"])


def compare_devices(bench, report, after):
    process = process_of(report, after["pid"])
    got = by_device(process)
    bench.equal("bytes on no known device", None, got.get(None))
    bench.equal("bytes on all devices", process["live_bytes"], sum(got.values()))
    reserved = {
        device: sum(
            a["bytes"]
            for a in allocations_of(process)
            if a["api"] == "cudaMalloc" and a["device"] == device
        )
        for device in range(len(after["reserved"]))
    }
    bench.equal("reserved on each device", after["reserved"], list(reserved.values()))
    uuids = {row["uuid"] for row in process["devices"] if row["uuid"]}
    bench.figure(bench.label, f"{got}, UUIDs {sorted(uuids)}")


def compare_rank(bench, report, said):
    """One process of two: all of its memory is on its own GPU."""
    bench.equal("the sum is right", True, said["right"])
    process = process_of(report, said["pid"])
    compare_devices(bench, report, said)
    kinds = process["kinds"]
    imported = kinds.get("imported", {"bytes": 0, "allocations": 0})
    bench.equal("imported, apart", imported["bytes"], process["imported_bytes"])
    counted = sum(total["bytes"] for kind, total in kinds.items() if kind != "imported")
    sums = process["live_bytes"] + process["host_bytes"]
    bench.equal("imported is in no other sum", counted, sums)
    show_kinds(bench, report, said["pid"])
