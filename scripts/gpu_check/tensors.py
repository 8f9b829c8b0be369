"""Checks on the tensors of PyTorch: block by block the same as its own snapshot."""

import os
import sqlite3
from collections import Counter

from blocks import ACTIVE, PENDING, blocks_of
from children import SLOW_SECONDS
from expect_kinds import MIB, process_of
from pytorch import CONF, WHOLE, compare_bytes, lines_of

def largest_gap(device):
    """The most bytes between two blocks that are handed out, in one segment.

    >>> block = {"address": 512, "size": 512, "state": "active_allocated"}
    >>> pending = dict(block, address=1024, state="active_pending_free")
    >>> free = dict(block, address=1536, state="inactive")
    >>> largest_gap({"segments": [{"address": 512, "blocks": [block, pending, free]}]})
    1024
    """
    largest = 0
    for segment in device["segments"]:
        gap = 0
        for block in segment["blocks"]:
            gap = 0 if block["state"] == ACTIVE else gap + block["size"]
            largest = max(largest, gap)
    return largest


def recorded_blocks(path, until_ns, device):
    """{address: (bytes, requested bytes or None)} of the blocks allocated at that time."""
    with sqlite3.connect(path) as db:
        query = "SELECT val FROM GPUPROBE_META WHERE key = 'monotonic_ns'"
        ((began_ns,),) = db.execute(query).fetchall()
        query = """SELECT address, bytes, isFree, requested FROM GPUPROBE_TENSORS
            WHERE t0 <= ? AND device = ? ORDER BY rowid"""
        live = {}
        for address, size, is_free, requested in db.execute(query, (until_ns - int(began_ns), device)):
            if is_free:
                live.pop(address, None)
            else:
                live[address] = (size, requested)
    return live


def compare_sums(report, after):
    """Compares a report's figures of each device with PyTorch's."""
    told = {one["device"]: one for one in process_of(report, after["pid"]).get("pytorch", [])}
    for device in after["devices"]:
        if not device["mallocs"]:
            continue
        ours, number = told.get(device["device"], {}), device["device"]
        blocks = blocks_of(device, ACTIVE)
        expected = {
            "allocated_bytes": device["allocated"],
            "reserved_bytes": device["reserved"],
            "tensors": len(blocks),
            "before_bytes": 0,
            "since_start": True,
            "segments": len(device["segments"]),
            "segment_bytes": sum(segment["total_size"] for segment in device["segments"]),
            "largest_free_bytes": largest_gap(device),
            "outside_bytes": 0,
            "alloc_calls": device["mallocs"],
            "unknown_frees": 0,
        }
        for key, value in expected.items():
            yield f"{key} of cuda:{number}", value, ours.get(key)
        pending = sum(block["size"] for block in blocks_of(device, PENDING))
        yield f"active of cuda:{number}, less what waits", device["active"] - pending, ours.get("allocated_bytes")
        if ours.get("requested_bytes") is not None:
            requested = sum(block["requested_size"] for block in blocks)
            yield f"requested_bytes of cuda:{number}", requested, ours["requested_bytes"]


def compare_lines(bench, report, after):
    """The same bytes from the same Python lines as PyTorch's history, of all that has one."""
    told = {one["device"]: one for one in process_of(report, after["pid"])["pytorch"]}
    for device in after["devices"]:
        if not device["mallocs"]:
            continue
        one = told[device["device"]]
        expected, ours = Counter(), Counter()
        for block in blocks_of(device, ACTIVE):
            lines = tuple(tuple(line) for line in block.get("frames", []))
            expected[lines] += block["size"]
        for site in one["sites"]:
            ours[lines_of(site)] += site["live_bytes"]
        compare_bytes(bench, "bytes of tensors from", expected, ours)


def check_leak(bench, sites, after):
    """The list that keeps outputs is a site with its line: the first, unless something holds more."""
    leak = after["leak"]
    found = {}
    for place, site in enumerate(sites):
        own = [line for line in lines_of(site) if line[1] == leak["file"]]
        if own:
            found.setdefault((own[0][0], own[0][2]), (place, site))
    place, site = found.get((leak["function"], leak["line"]), (None, {}))
    bench.equal("bytes of the leak at least", True, site.get("live_bytes", 0) >= leak["requested_bytes"])
    more = sum(other["live_bytes"] > site.get("live_bytes", 0) for other in sites)
    bench.equal("place of the leak", more, place)


def check_tensors(bench, steps, configuration=""):
    """Every block, its bytes and requested bytes, and the lines that hold them."""
    if bench.is_missing("torch"):
        return
    recording = bench.directory / f"{bench.label.replace(' ', '-').replace(',', '')}.sqlite"
    options = ("--tensors", "requested", "--record", str(recording), *WHOLE)
    command = bench.torch("history", *steps.split(), "wait")
    for after, report, _ in bench.waits(command, *options, env=os.environ | {CONF: configuration}):
        bench.all_equal(compare_sums(report, after))
        compare_lines(bench, report, after)
        if after.get("leak"):
            check_leak(bench, process_of(report, after["pid"])["pytorch"][0]["sites"], after)
    for device in after["devices"]:
        blocks = blocks_of(device, ACTIVE)
        ours = recorded_blocks(recording, after["monotonic_ns"], device["device"])
        expected = {block["address"]: block["size"] for block in blocks}
        bench.equal("recorded blocks", expected, {at: size for at, (size, _) in ours.items()})
        asked = {at: requested for at, (_, requested) in ours.items() if requested is not None}
        expected = {b["address"]: b["requested_size"] for b in blocks if b["address"] in asked}
        bench.equal("what was asked for", expected, asked)
        bench.figure(
            bench.label, f"{len(ours)} blocks, of {len(asked)} of them what was asked for, {device['mallocs']} calls"
        )


def check_tensors_late(bench):
    """The sums are right from the first block on; memory from before the attach is a sum that
    shrinks."""
    if bench.is_missing("torch"):
        return
    command = bench.torch("train", "wait", "leak=20", "wait", "release", "leak=3", "wait")
    target = bench.start(*command)
    before = target.truth("wait", 1, SLOW_SECONDS)
    tracer = bench.trace("--pid", str(target.pid))
    tracer.wait_tracing()
    target.go()
    after = target.truth("wait", 2, SLOW_SECONDS)
    addresses = {block["address"] for block in blocks_of(before["devices"][0], ACTIVE)}
    device = after["devices"][0]
    old = sum(b["size"] for b in blocks_of(device, ACTIVE) if b["address"] in addresses)
    (ours,) = process_of(tracer.fresh_report(), target.pid)["pytorch"]
    for key, expected in (("allocated_bytes", device["allocated"]), ("reserved_bytes", device["reserved"])):
        bench.equal(key, expected, ours[key])
    bench.equal("since_start", False, ours["since_start"])
    bench.equal("before_bytes at least", True, old - 4 * MIB <= ours["before_bytes"] <= old)
    target.go()
    device = target.truth("wait", 3, SLOW_SECONDS)["devices"][0]
    (ours,) = process_of(tracer.fresh_report(), target.pid)["pytorch"]
    for key, expected in (("allocated_bytes", device["allocated"]), ("reserved_bytes", device["reserved"])):
        bench.equal(f"{key} after a release", expected, ours[key])
    left = sum(b["size"] for b in blocks_of(device, ACTIVE) if b["address"] in addresses)
    bench.equal("before_bytes after a release", True, left - 9 * MIB <= ours["before_bytes"] <= left < old)
    tracer.finish()
    target.go()
    target.wait()


def check_tensors_ddp(bench):
    """Two processes of distributed training, a GPU each: each compared block by block with
    PyTorch."""
    if bench.is_missing("torch", gpus=2):
        return
    command = bench.script("torch_ranks.py", "train", "wait", "end")
    for _, report, tracer in bench.waits(command, "--tensors", "requested", *WHOLE):
        for rank in (0, 1):
            after = tracer.truth(f"rank{rank}")
            bench.all_equal(compare_sums(report, after))
            compare_lines(bench, report, after)
            if "leak" in after:
                told = {one["device"]: one for one in process_of(report, after["pid"])["pytorch"]}
                check_leak(bench, told[rank]["sites"], after)
