"""Checks on the blocks of allocators from before the attach: the same as the allocators' own accounts."""

import os
import pickle
import statistics
import subprocess
import time

from children import SLOW_SECONDS, Failed
from expect_kinds import kind_bytes, process_of
from frameworks import POOLED
from pytorch import CONF

ACTIVE = "active_allocated"
# Freed, and still in use by another stream: PyTorch counts it as active.
PENDING = "active_pending_free"
SEGMENT = ("address", "total_size", "stream", "segment_type", "is_expandable")
# Turns with and without snapshots in the paired measurement.
TURNS, TURN_SECONDS = 8, 0.6
EVERY_SECONDS = 0.1


def blocks_of(device, state):
    """The blocks of a device of torch_tensors.py that are in one state.

    >>> block = {"address": 512, "size": 1024, "requested_size": 1000, "state": "active_allocated"}
    >>> free = dict(block, address=1536, state="inactive")
    >>> [block["address"] for block in blocks_of({"segments": [{"blocks": [block, free]}]}, ACTIVE)]
    [512]
    """
    blocks = (block for segment in device["segments"] for block in segment["blocks"])
    return [block for block in blocks if block["state"] == state]


def shape(segments):
    """What a snapshot says of segments and blocks, but for frames, in an order of its own.

    >>> free = {"address": 16, "size": 8, "requested_size": 5, "state": "inactive"}
    >>> segment = dict.fromkeys(SEGMENT, 16) | {"segment_pool_id": [0, 0], "blocks": [free]}
    >>> shape([segment])
    {16: ((16, 16, 16, 16, 16), (0, 0), [(16, 8, 0, 'inactive')])}
    """
    return {
        segment["address"]: (
            tuple(segment[key] for key in SEGMENT),
            tuple(segment["segment_pool_id"]),
            [
                (b["address"], b["size"], b["requested_size"] if b["state"] != "inactive" else 0, b["state"])
                for b in segment["blocks"]
            ],
        )
        for segment in sorted(segments, key=lambda segment: segment["address"])
    }


def lines_of(segments):
    """Where blocks that the program holds were allocated, if PyTorch has recorded that, innermost frame first.

    >>> frames = [["f", "a.py", 3]]
    >>> lines_of([{"blocks": [{"address": 16, "state": ACTIVE, "frames": frames}]}])
    {16: [('a.py', 3)]}
    """
    blocks = blocks_of({"segments": segments}, ACTIVE)
    listed = ((block["address"], block.get("frames", [])) for block in blocks)
    return {address: [(file, line) for _, file, line in frames] for address, frames in listed if frames}


def snapshot(bench, pid, check=True):
    """(segments by device, seconds) of `gpuprobe snapshot`; None if there was none and it need not be."""
    path = bench.directory / f"{pid}.pickle"
    path.unlink(missing_ok=True)
    began = time.monotonic()
    command = [bench.gpuprobe, "snapshot", "--pid", str(pid), "-o", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    took = time.monotonic() - began
    if ended.returncode or not path.exists():
        if check:
            raise Failed(f"snapshot: status {ended.returncode}: {ended.stderr.strip()}")
        return None
    segments = pickle.loads(path.read_bytes())["segments"]
    devices = {}
    for segment in segments:
        for block in segment["blocks"]:
            block["frames"] = [(one["name"], one["filename"], one["line"]) for one in block.get("frames", [])]
        devices.setdefault(segment["device"], []).append(segment)
    return devices, took


def compare_snapshot(bench, target, after):
    """Segment by segment, block by block."""
    devices, took = snapshot(bench, target.pid)
    for device in after["devices"]:
        expected, ours = shape(device["segments"]), shape(devices.get(device["device"], []))
        bench.equal(f"segments of cuda:{device['device']}", list(expected), list(ours))
        for address in expected.keys() & ours.keys():
            (facts, pool, said), (our_facts, our_pool, found) = expected[address], ours[address]
            bench.equal(f"segment {address:#x}", (*facts, pool), (*our_facts, our_pool))
            others = sorted(set(said) - set(found)), sorted(set(found) - set(said))
            bench.equal(f"blocks of {address:#x} that differ", ([], []), others)
        lines, ours = lines_of(device["segments"]), lines_of(devices.get(device["device"], []))
        differ = {address for address in lines if lines[address] != ours.get(address)}
        bench.equal("blocks with other lines", set(), differ)
        if lines:
            bench.figure(bench.label, f"{len(lines)} blocks of cuda:{device['device']} have their lines")
        blocks = [block for segment in device["segments"] for block in segment["blocks"]]
        if blocks:
            states = {state: sum(b["state"] == state for b in blocks) for state in {b["state"] for b in blocks}}
            pools = len({tuple(segment["segment_pool_id"]) for segment in device["segments"]})
            reserved = device["reserved"] / (1 << 30)
            bench.figure(bench.label, f"{reserved:.2f} GiB, {states}, {pools} pools: {took:.3f} s")
    bench.equal("under a second", True, took < 1)


def compare_report(report, pid, after):
    """What a report says of blocks all of which are from before the attach."""
    told = {one["device"]: one for one in process_of(report, pid)["pytorch"]}
    for device in after["devices"]:
        if not device["mallocs"]:
            continue
        ours, number = told.get(device["device"], {}), device["device"]
        blocks = blocks_of(device, ACTIVE)
        private = [one for one in device["segments"] if tuple(one["segment_pool_id"]) != (0, 0)]
        expected = {
            "allocated_bytes": device["allocated"],
            "reserved_bytes": device["reserved"],
            "tensors": len(blocks),
            "before_bytes": device["allocated"],
            "segments": len(device["segments"]),
            "segment_bytes": device["reserved"],
            "pending_free_bytes": sum(block["size"] for block in blocks_of(device, PENDING)),
            "private_pool_bytes": sum(segment["total_size"] for segment in private),
        }
        for key, value in expected.items():
            yield f"{key} of cuda:{number}", value, ours.get(key)


def check_blocks(bench, script, steps, more, configuration=""):
    """An idle process: its snapshot, and the first report. A busy one: what is left of those blocks."""
    modules = ("torch",) if script == "torch_tensors.py" else ("torch", "transformers")
    if bench.is_missing(*modules, gpus=2 if "device=1" in steps else 1):
        return
    command = bench.script(script, *steps.split(), "wait", *more.split(), "wait")
    target = bench.start(*command, env=bench.environment() | {CONF: configuration})
    before = target.truth("wait", seconds=SLOW_SECONDS)
    compare_snapshot(bench, target, before)
    tracer = bench.trace("--pid", str(target.pid))
    tracer.wait_tracing()
    bench.all_equal(compare_report(tracer.fresh_report(), target.pid, before))
    target.go()
    after = target.truth("wait", 2, SLOW_SECONDS)
    report = tracer.fresh_report()
    compare_snapshot(bench, target, after)
    told = {one["device"]: one for one in process_of(report, target.pid)["pytorch"]}
    for device, old in zip(after["devices"], before["devices"]):
        ours = told.get(device["device"], {})
        bench.equal("allocated later", device["allocated"], ours.get("allocated_bytes"))
        bench.equal("reserved later", device["reserved"], ours.get("reserved_bytes"))
        bench.equal("tensors later", len(blocks_of(device, ACTIVE)), ours.get("tensors"))
        # A block that was freed and handed out again at its address is no longer from before.
        still = {block["address"]: block["size"] for block in blocks_of(old, ACTIVE)}
        most = sum(b["size"] for b in blocks_of(device, ACTIVE) if still.get(b["address"]) == b["size"])
        bench.equal("from before at most", True, ours.get("before_bytes", 0) <= most)
    tracer.finish()
    target.go()
    bench.equal("exit status of the program", 0, target.wait())


def check_census(bench):
    """Sums at rest are the allocator's own, and a leak's line holds what was allocated in windows."""
    if bench.is_missing("torch"):
        return
    target = bench.start(*bench.torch("train", "wait", "pace=80", "leak=300", "wait", "release", "leak=3", "wait"))
    target.truth("wait", seconds=SLOW_SECONDS)
    tracer = bench.trace("--pid", str(target.pid), "--tensors", "census")
    tracer.wait_tracing()
    for number in (1, 2, 3):
        after = target.truth("wait", number, SLOW_SECONDS)
        ours = process_of(tracer.fresh_report(), target.pid)["pytorch"][0]
        device = after["devices"][0]
        expected = {
            "allocated_bytes": device["allocated"],
            "reserved_bytes": device["reserved"],
            "tensors": len(blocks_of(device, ACTIVE)),
            "pending_free_bytes": sum(block["size"] for block in blocks_of(device, PENDING)),
        }
        for key, value in expected.items():
            bench.equal(f"{key} at wait {number}", value, ours.get(key))
        bench.figure(bench.label, f"{ours['allocated_bytes']} allocated, with a line {ours.get('line_bytes')}")
        target.go()
    tracer.finish()
    bench.equal("exit status of the program", 0, target.wait())


def check_blocks_paced(bench):
    """Steps of a program while snapshots of it are made, and while not, in turn: it isn't stopped."""
    if bench.is_missing("torch"):
        return
    seconds = 2 * TURNS * TURN_SECONDS
    target = bench.start(*bench.torch("train", "wait", f"pace={int(10 * seconds) + 5}", "wait"))
    target.truth("wait", seconds=SLOW_SECONDS)
    target.go()
    tries, windows = [], []
    for turn in range(2 * TURNS):
        began = time.monotonic_ns()
        end = began + TURN_SECONDS * 1e9
        while time.monotonic_ns() < end:
            if turn % 2:
                tries.append(snapshot(bench, target.pid, check=False))
            time.sleep(EVERY_SECONDS)
        windows.append((began, time.monotonic_ns()))
    ends = target.truth("wait", 2, SLOW_SECONDS)["ends"]
    steps = [[b - a for a, b in zip(ends, ends[1:]) if begun <= a and b <= over] for begun, over in windows]
    ratios = [statistics.median(w) / statistics.median(n) for n, w in zip(steps[::2], steps[1::2]) if n and w]
    worst = [max(map(max, filter(None, some))) / 1e6 for some in (steps[::2], steps[1::2])]
    took = [one[1] for one in tries if one] or [0]
    if len(ratios) < 2:
        raise Failed(f"too few windows: {len(took)} of {len(tries)} snapshots, at most {max(took):.3f} s")
    low, middle, high = statistics.quantiles(ratios)
    bench.figure(
        bench.label,
        f"a step with snapshots {middle:.3f} ({low:.3f} to {high:.3f}) of one without; the longest"
        f" {worst[0]:.1f} ms without, {worst[1]:.1f} with; {len(took)} of {len(tries)} snapshots, in"
        f" {statistics.median(took):.3f} s, at most {max(took):.3f} s",
    )
    bench.equal("no step is much longer than the longest without", True, worst[1] < 3 * worst[0])
    target.go()
    bench.equal("exit status of the program", 0, target.wait())


def check_jax_memory_late(bench):
    """Chunks from before the attach are known once the allocator was heard of."""
    if bench.is_missing("jax"):
        return
    command = bench.script("jax_program.py", "init", "lines", "wait", "take", "wait", "drop", "wait")
    target = bench.start(*command, env=bench.environment())
    target.truth("wait", seconds=SLOW_SECONDS)
    tracer = bench.trace("--pid", str(target.pid))
    tracer.wait_tracing()
    for number in (2, 3):
        target.go()
        after = target.truth("wait", number, SLOW_SECONDS)
        report, stats = tracer.fresh_report(), after["stats"]
        chunks = process_of(report, target.pid).get("xla", [])
        sums = [(one["allocated_bytes"], one["peak_allocated_bytes"]) for one in chunks]
        bench.equal("chunks, and their peak", [(stats["bytes_in_use"], stats["peak_bytes_in_use"])], sums)
        (one,) = chunks or [{}]
        sites = [(site["live_bytes"], site["label"]) for site in one.get("sites", [])]
        bench.equal("sum of call sites", stats["bytes_in_use"], sum(size for size, _ in sites))
        bench.figure(bench.label, f"{stats}; {sites[:5]}; {kind_bytes(report, target.pid, *POOLED)}")
    tracer.finish()
    target.go()
    bench.equal("exit status of the program", 0, target.wait())
