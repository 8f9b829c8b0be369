"""Checks on the memory of PyTorch and the libraries on top of it: by the numbers of its own
allocator, and by the lines of its own history."""

import json
import os
from collections import Counter

from children import SLOW_SECONDS
from expect import compare_frame, compare_torch, losses, reported_blocks, total_of
from expect_kinds import MIB, allocations_of, kind_bytes, process_of

CONF = "PYTORCH_CUDA_ALLOC_CONF"
STEPS = ("second", "matmul", "drop", "wait")
WAITS = ("init", "wait", "first", "second", "wait", "matmul", "drop", "wait")
# Every native variant of a line by itself, with all frames.
WHOLE = ("--full-stacks", "--group", "native-stack")


def show_others(bench, report):
    """Prints the allocations of libraries with their own runtime beside the allocator."""
    others = [block for block in reported_blocks(report) if block.api != "cudaMalloc"]
    size = sum(block.size_bytes for block in others)
    calls = json.dumps(report["memleak"]["calls"])
    bench.figure(
        bench.label,
        f"calls {calls}, free_calls {report['memleak']['free_calls']},"
        f" failed_calls {report['memleak']['failed_calls']}; not the allocator's:"
        f" {len(others)} live blocks, {size / MIB:.2f} MiB",
    )


def show_kinds(bench, report, pid):
    process = process_of(report, pid)
    kinds = ", ".join(
        f"{kind} {total['bytes'] / MIB:.2f} MiB in {total['allocations']}"
        for kind, total in process.get("kinds", {}).items()
    )
    bench.figure(bench.label, f"{kinds}; nvml {process.get('nvml')}")


def check_torch_started(bench):
    """Allocations at the driver are made by other libraries, past the cache."""
    for after, report, _ in bench.waits(bench.torch(*WAITS)):
        bench.all_equal(compare_torch(report, after))
        others = sum(
            a["bytes"]
            for a in allocations_of(process_of(report, after["pid"]))
            if a["kind"] == "device" and a["api"] == "cuMemAlloc_v2"
        )
        device = kind_bytes(report, after["pid"], "device")
        bench.equal("device = reserved + other libraries'", total_of(after, "reserved") + others, device)
    exited = {process["pid"]: process["exited"] for process in bench.final["memleak"]["processes"]}
    bench.equal("exited", True, exited.get(after["pid"]))
    show_kinds(bench, report, after["pid"])
    show_others(bench, bench.final)


def check_torch_late(bench):
    target = bench.start(*bench.torch("init", "first", "wait", *STEPS))
    before = target.truth("wait")
    tracer = bench.trace("--pid", str(target.pid))
    tracer.wait_tracing()
    finish_torch(bench, tracer, target, before)


def check_torch_everywhere(bench):
    """Comes after gpuprobe, with a runtime in its own wheel, and is seen in time.
    (What is not seen in time is check_new_copy's matter.)"""
    tracer = bench.trace()
    tracer.wait_tracing()
    target = bench.start(*bench.torch("wait", "first", *STEPS))
    target.truth("wait")
    tracer.fresh_report()
    finish_torch(bench, tracer, target, None)


def finish_torch(bench, tracer, target, before):
    target.go()
    after = target.truth("wait", 2)
    bench.all_equal(compare_torch(tracer.fresh_report(), after, before))
    _, report = tracer.finish()
    show_others(bench, report)
    target.go()
    target.wait()


def check_torch_expandable(bench):
    env = os.environ | {CONF: "expandable_segments:True"}
    for after, report, _ in bench.waits(bench.torch(*WAITS), env=env):
        bench.equal("vmm = reserved", total_of(after, "reserved"), kind_bytes(report, after["pid"], "vmm"))
        bench.equal("cudaMalloc calls", None, report["memleak"]["calls"].get("cudaMalloc"))
    show_kinds(bench, report, after["pid"])


def check_torch_async(bench):
    """The driver rounds what it hands out up to 512 bytes; the tensors are multiples. PyTorch reports
    no blocks of this allocator: they are allocations of their own."""
    env = os.environ | {CONF: "backend:cudaMallocAsync"}
    for after, report, _ in bench.waits(bench.torch(*WAITS[:-1], "leak=20", "wait"), env=env):
        process = process_of(report, after["pid"])
        bench.equal("backend", "cudaMallocAsync", after["backend"])
        used = kind_bytes(report, after["pid"], "async")
        bench.equal("async = allocated", total_of(after, "allocated"), used)
        bench.equal("used of all pools", used, sum(pool["used_bytes"] for pool in process.get("pools", [])))
        bench.equal("no tensors", None, process.get("pytorch"))
    bench.equal("pools", ["PyTorch, cudaMallocAsync"], process.get("framework_pools"))
    bench.equal("bytes of the leak", True, used >= after["leak"]["requested_bytes"])
    show_kinds(bench, report, after["pid"])


# ---- two GPUs ----------------------------------------------------------------


def check_devices(bench):
    """Each GPU has the memory that PyTorch reserved there, and NCCL's imports are not counted."""
    if bench.is_missing("torch", gpus=2):
        return
    command = bench.script("torch_ranks.py", "tensors", "wait", "peer", "wait", "reduce", "wait", "end")
    for number, (after, report, tracer) in enumerate(bench.waits(command)):
        compare_devices(bench, report, after)
        for rank in (0, 1) if number == 2 else ():
            compare_rank(bench, report, tracer.truth(f"rank{rank}"))
    bench.all_equal(compare_frame(bench.final))
    bench.equal("unknown_frees", 0, bench.final["memleak"]["unknown_frees"])


def compare_devices(bench, report, after):
    process = process_of(report, after["pid"])
    got = {row["device"]: row["bytes"] for row in process.get("devices", [])}
    bench.equal("bytes on no known device", None, got.get(None))
    bench.equal("bytes on all devices", process["live_bytes"], sum(got.values()))
    for device in after["devices"]:
        ours = sum(
            a["bytes"]
            for a in allocations_of(process)
            if a["api"] == "cudaMalloc" and a["device"] == device["device"]
        )
        bench.equal(f"reserved on cuda:{device['device']}", device["reserved"], ours)
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


# ---- Python lines ------------------------------------------------------------


def lines_of(site):
    """The Python frames of a site, innermost first, as PyTorch's history has them: the last part of
    the name, the file, the line; without those of the thread that waits for it.

    >>> frame = {"language": "python", "function": "A.f", "file": "a.py", "line": 3}
    >>> waiting = {"language": "python", "function": "[the main thread waits]", "file": None, "line": None}
    >>> lines_of({"stack": [{"language": "native"}, frame, waiting, frame]})
    (('f', 'a.py', 3),)
    """
    lines = []
    for frame in site["stack"]:
        if frame["language"] != "python":
            continue
        if frame["function"] == "[the main thread waits]":
            break
        lines.append((frame["function"].rpartition(".")[2], frame["file"], frame["line"]))
    return tuple(lines)


def sites_of(report, pid):
    return [site for site in process_of(report, pid)["sites"] if site["live_bytes"]]


def compare_bytes(bench, what, expected, ours):
    """Two counts of bytes by lines."""
    for lines in expected.keys() | ours.keys():
        bench.equal(f"{what} {lines[:4]}", expected[lines], ours[lines])
    bench.figure(bench.label, f"{len(expected)} lines that hold {sum(expected.values()) / MIB:.1f} MiB")


def check_torch_history(bench):
    """For each segment the Python frames are those of PyTorch's own history."""
    if bench.is_missing("torch"):
        return
    for after, report, _ in bench.waits(bench.script("torch_python.py", "work", "wait"), *WHOLE):
        expected, ours = Counter(), Counter()
        for segment in after["segments"]:
            expected[tuple(tuple(line) for line in segment["frames"])] += segment["bytes"]
        for site in sites_of(report, after["pid"]):
            if any("libc10_cuda" in (frame["module"] or "") for frame in site["stack"]):
                ours[lines_of(site)] += site["live_bytes"]
        compare_bytes(bench, "bytes from", expected, ours)


def check_gpt2_late(bench):
    """A training that runs already: nothing is lost, no stack is cut, and tensors are as PyTorch counts them."""
    if bench.is_missing("torch", "transformers"):
        return
    command = bench.script("train_libraries.py", "gpt2=3", "wait", "gpt2=100", "wait")
    target = bench.start(*command, env=bench.environment())
    target.truth("wait", seconds=SLOW_SECONDS)
    tracer = bench.trace("--pid", str(target.pid), "--full-stacks")
    tracer.wait_tracing()
    target.go()
    after = target.truth("wait", 2, SLOW_SECONDS)
    _, report = tracer.finish()
    target.go()
    bench.equal("exit status of the program", 0, target.wait())
    bench.equal("lost", {}, losses(report))
    process = process_of(report, target.pid)
    (pytorch,) = process["pytorch"]
    bench.equal("allocated", after["allocated"], pytorch["allocated_bytes"])
    sites = pytorch["sites"]
    bench.equal("there are call sites of tensors", True, bool(sites))
    cut = [site["label"] for site in sites + process["sites"] if not site["complete"]]
    bench.equal("call stacks that are cut", [], cut)
    tensors = sum(site["alloc_calls"] for site in sites)
    bench.figure(bench.label, f"{tensors} tensors at {len(sites)} live call sites in 100 steps")


def check_user_lines(bench, module, script, step, least_bytes=MIB):
    """Each site above so many bytes has a line of the program."""
    if bench.is_missing(*module.split(",")):
        return
    command = bench.script(script, step, "wait")
    for after, report, _ in bench.waits(command, "--full-stacks", env=bench.environment()):
        sites = [s for s in sites_of(report, after["pid"]) if s["live_bytes"] >= least_bytes]
        bench.equal("there are sites", True, bool(sites))
        for site in sites:
            own = [
                f"{frame['file'].rpartition('/')[2]}:{frame['line']}"
                for frame in site["stack"]
                if frame["language"] == "python" and (frame["file"] or "").endswith(script)
            ]
            bench.equal(f"{site['live_bytes'] // MIB} MiB, {site['label']}: a line of {script}", True, bool(own))
        bench.figure(bench.label, f"{len(sites)} sites above {least_bytes / MIB:g} MiB; lost {losses(report)}")
        for site in sorted(sites, key=lambda site: -site["live_bytes"])[:4]:
            bench.figure(bench.label, f"{site['live_bytes'] / MIB:.1f} MiB {site['label']}")
