"""Part of selfcheck.sh: reads the USDT notes and snapshots of the stand-in of PyTorch's allocator.

    selfcheck_torch.py notes LIBRARY    its USDT notes, one a line
    selfcheck_torch.py snapshot         replies of `tsnapshot` and `info` on standard input

Each prints what was found, and "WRONG: ..." for what cannot be.
"""

import json
import re
import subprocess
import sys

NOTE = re.compile(
    r"Provider: pytorch\s+Name: (\w+)\s+Location: (\w+), Base: 0x0+, Semaphore: (\w+)\s+Arguments: (.*)"
)


def readelf(*arguments):
    return subprocess.run(["readelf", *arguments], capture_output=True, text=True, check=True).stdout


def section(library, name):
    """(address, offset, size) in bytes."""
    row = re.search(rf"\] {re.escape(name)} +\w+ +(\w+) (\w+) (\w+)", readelf("-SW", library))
    return [int(number, 16) for number in row.groups()]


def print_notes(library):
    """Offsets of memory operands are the compiler's choice, and printed as N."""
    code, code_offset, _ = section(library, ".text")
    semaphores, _, semaphores_size = section(library, ".probes")
    with open(library, "rb") as file:
        for name, location, semaphore, arguments in NOTE.findall(readelf("-nW", library)):
            print(f"{name} {re.sub(r'-[0-9]+(?=[(])', 'N', arguments.strip())}")
            file.seek(int(location, 16) - code + code_offset)
            if file.read(1) != b"\x90":
                print("WRONG: no nop")
            if not 0 <= int(semaphore, 16) - semaphores < semaphores_size:
                print("WRONG: no semaphore")


def wrong_in(segment):
    """Blocks follow each other from the segment's start to its end, and no two of them that do are
    free."""
    place = segment["address"]
    states = [block["state"] for block in segment["blocks"]]
    for block in segment["blocks"]:
        if block["address"] != place:
            yield "a block is not where the one before ends"
        if block["size"] % 512 or not block["requested_size"] <= block["size"]:
            yield "the size of a block"
        place += block["size"]
    if place != segment["address"] + segment["total_size"]:
        yield "the end of a segment"
    if ("inactive", "inactive") in zip(states, states[1:]):
        yield "free blocks side by side"


def wrong_with(device):
    """Checks that its sums are those of its segments and blocks."""
    segments = device["segments"]
    for segment in segments:
        yield from wrong_in(segment)
    for one, other in zip(segments, segments[1:]):
        if one["address"] + one["total_size"] > other["address"]:
            yield "segments overlap or are in no order"
    active = [block for block in blocks_of(device) if block["state"] == "active_allocated"]
    sums = {
        "allocated": sum(block["size"] for block in active),
        "requested": sum(block["requested_size"] for block in active),
        "reserved": sum(segment["total_size"] for segment in segments),
    }
    yield from (key for key, size in sums.items() if device[key] != size)
    if device["mallocs"] - device["frees"] != len(active):
        yield "mallocs and frees"


def blocks_of(device):
    return [block for segment in device["segments"] for block in segment["blocks"]]


def print_snapshot():
    """A line for each device, with the memory that CUDA reports as allocated from the first."""
    replies = sys.stdin.read().splitlines()
    for device in json.loads(next(line for line in replies if line.startswith("ok ["))[3:]):
        segments = device["segments"]
        kinds = {"expandable" if s["is_expandable"] else s["segment_type"] for s in segments}
        active = sum(block["state"] != "inactive" for block in blocks_of(device))
        print(f"device={device['device']} segments={len(segments)} blocks={active}", *sorted(kinds))
        for wrong in wrong_with(device):
            print("WRONG:", wrong)
        if device["device"] == 0:
            free, total = re.search(r"free=(\d+) total=(\d+)", replies[-1]).groups()
            if int(total) - int(free) != device["reserved"]:
                print("WRONG: CUDA says", int(total) - int(free), "for", device["reserved"])


if sys.argv[1] == "notes":
    print_notes(sys.argv[2])
else:
    print_snapshot()
