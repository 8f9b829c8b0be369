#!/usr/bin/env python3
"""Checks that PyTorch's own viewers read a snapshot that `gpuprobe export --format torch` has written.

    scripts/torch_viz_check.py SNAPSHOT [DIR]

First what the format asks for: every key, blocks that tile their segments, and a trace that leads to
the segments, played backwards as the viewer does it. Then, with DIR, the real programs: `_memory_viz.py`
of torch/cuda (trace, segsum, memory), and `MemoryViz.js` of torch/utils/viz in node, with stand-ins for
what draws: unpickled, and every view computed. Both are looked for below DIR; nothing of them is needed
without it. They are no part of gpuprobe: get them from a wheel and from PyTorch's repository.
The exit status is 0 if everything is as it should be, else 1.
"""

import argparse
import importlib.util
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

SEGMENT = {
    "device": int,
    "address": int,
    "total_size": int,
    "allocated_size": int,
    "active_size": int,
    "requested_size": int,
    "stream": int,
    "segment_type": str,
    "segment_pool_id": tuple,
    "is_expandable": bool,
    "frames": list,
    "blocks": list,
}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
FRAME = {"name": str, "filename": str, "line": int}
EVENT = {"action": str, "addr": int, "size": int, "stream": int, "time_us": int, "frames": list}
ACTIONS = {
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
}
# The viewer's limit of drawn entries, and the number of checked states.
DRAWN = 15000
STATES = 400

failures = []


def check(what, found, expected):
    """Records whether two values agree."""
    if found != expected:
        print(f"FAIL  {what}: {str(found)[:200]}, not {str(expected)[:200]}")
        failures.append(what)
    return found == expected


def done(what):
    """Says that a part is over."""
    print(f"{'FAIL' if failures else 'ok  '}  {what}")


def check_keys(what, value, keys, optional=()):
    """A dictionary with these keys, of these types."""
    types = {key: type(value[key]) for key in value if key not in optional}
    check(f"keys of {what}", types, keys)


def check_frames(frames, seen):
    """Frames; the same list is looked at once."""
    if id(frames) not in seen:
        seen[id(frames)] = frames
        for frame in frames:
            check_keys("a frame", frame, FRAME)


def check_segment(segment, seen):
    """A segment, and that its blocks lie in it without a gap."""
    check_keys("a segment", segment, SEGMENT)
    check_frames(segment["frames"], seen)
    check("pool of a segment", [type(part) for part in segment["segment_pool_id"]], [int, int])
    at, active, pending, requested = segment["address"], 0, 0, 0
    for block in segment["blocks"]:
        check_keys("a block", block, BLOCK)
        check_frames(block["frames"], seen)
        check("address of a block", block["address"], at)
        at += block["size"]
        if block["state"] in ("active_allocated", "active_pending_free"):
            active += block["size"]
            pending += block["size"] * (block["state"] == "active_pending_free")
            requested += block["requested_size"]
            check("requested of what a block has", 0 < block["requested_size"] <= block["size"], True)
        else:
            check("state of a block", (block["state"], block["requested_size"]), ("inactive", 0))
    check("end of the blocks of a segment", at, segment["address"] + segment["total_size"])
    sums = segment["active_size"], segment["allocated_size"], segment["requested_size"]
    check("sums of a segment", sums, (active, active - pending, requested))


def check_schema(snapshot):
    """Every key of everything."""
    seen = {}
    keys = {"segments": list, "device_traces": list, "allocator_settings": dict}
    check_keys("the snapshot", snapshot, keys)
    for segment in snapshot["segments"]:
        check_segment(segment, seen)
        check("device of a segment", segment["device"] < len(snapshot["device_traces"]), True)
    categories = set()
    for trace in snapshot["device_traces"]:
        last_us = 0
        for event in trace:
            check_keys("an event", event, EVENT, ("category",))
            check_frames(event["frames"], seen)
            check("an action", event["action"] in ACTIONS, True)
            check("order of events", event["time_us"] >= last_us, True)
            last_us = event["time_us"]
            categories.add(event.get("category", "unknown"))
    if categories:
        check("categories have one for what has none", "unknown" in categories, True)
    return sorted(categories)


class Played:
    """The state of a device, which is played backwards from the end of its trace."""

    def __init__(self, segments):
        self.segments = {s["address"]: s["total_size"] for s in segments}
        self.blocks = {}
        for segment in segments:
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    self.blocks[block["address"]] = block["requested_size"]

    def check_blocks(self):
        """Every block lies in a segment; no segments overlap."""
        segments = sorted(self.segments.items())
        ends = [address + size for address, size in segments]
        for (address, _), end in zip(segments[1:], ends):
            check("end of a segment before the next", end <= address, True)
        index = 0
        for address in sorted(self.blocks):
            while index < len(ends) and ends[index] <= address:
                index += 1
            is_in = index < len(ends) and segments[index][0] <= address
            check(f"a block at {address:#x} is in a segment", is_in, True)

    def cut(self, address, size):
        """Removes unmapped memory from its segment."""
        for at, length in self.segments.items():
            if at <= address and address + size <= at + length:
                del self.segments[at]
                if at < address:
                    self.segments[at] = address - at
                if address + size < at + length:
                    self.segments[address + size] = at + length - address - size
                return
        check(f"a segment around {address:#x} that was mapped", None, address)

    def back(self, event):
        """Undoes an event."""
        address, size = event["addr"], event["size"]
        match event["action"]:
            case "alloc":
                check("size of a block that was allocated", self.blocks.pop(address, None), size)
            case "free_completed":
                check("a freed block is not there", self.blocks.get(address), None)
                self.blocks[address] = size
            case "segment_alloc":
                check("size of a segment that came", self.segments.pop(address, None), size)
            case "segment_map":
                self.cut(address, size)
            case "segment_free" | "segment_unmap":
                check("a freed segment is not there", self.segments.get(address), None)
                self.segments[address] = size


def check_trace(snapshot, device):
    """The trace leads to the segments, and never through an invalid state."""
    trace = snapshot["device_traces"][device]
    segments = [s for s in snapshot["segments"] if s["device"] == device]
    state = Played(segments)
    state.check_blocks()
    every = max(1, len(trace) // STATES)
    for index, event in reversed(list(enumerate(trace))):
        state.back(event)
        if event["action"] == "free_completed":
            before = trace[index - 1]
            pair = before["action"], before["addr"], before["size"]
            check("before a free", pair, ("free_requested", event["addr"], event["size"]))
        elif index % every == 0 and event["action"] != "free_requested":
            state.check_blocks()
    state.check_blocks()


def find(folder, name):
    """The file of this name below a folder."""
    found = sorted(pathlib.Path(folder).rglob(name))
    if not found:
        sys.exit(f"there is no {name} below {folder}")
    return found[0]


def check_python(snapshot, folder):
    """PyTorch's own reader in Python."""
    path = find(folder, "_memory_viz.py")
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    viz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viz)
    text = viz.trace(snapshot)
    for trace in snapshot["device_traces"]:
        if trace:
            check("entries of the trace", f"{len(trace)} entries" in text, True)
    done(f"{path}: trace: {len(text.splitlines())} lines")
    text = viz.segsum(snapshot)
    check("segments", f"segments: {len(snapshot['segments'])}\n" in text, True)
    done(f"{path}: segsum: {text.splitlines()[-15:-11]}")
    folded = viz.memory(snapshot, format_flamegraph=lambda lines: lines)
    total = sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines())
    check("bytes of memory", total, sum(s["total_size"] for s in snapshot["segments"]))
    done(f"{path}: memory: {len(folded.splitlines())} lines, {total} bytes")


STUB = """
const stub = new Proxy(function () {}, {
  get: (_, key) => (key === Symbol.toPrimitive ? () => 0 : stub),
  apply: () => stub,
});
const [d3, axisLeft, scaleLinear, zoom, zoomIdentity, brushX] = Array(6).fill(stub);
globalThis.window = stub;
console.log = () => {};
"""
HARNESS = """
import {readFileSync, writeFileSync} from 'node:fs';
const [file, out, states, drawn] = process.argv.slice(2);
const bytes = readFileSync(file);
const buffer = () => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
const plain = unpickle(buffer());
const snapshot = unpickle(buffer());
annotate_snapshot(snapshot);
const devices = snapshot.device_traces.map((trace, device) => {
  const info = {register() {}, highlight() {}};
  const view = MemoryView(stub, info, snapshot, device);
  const every = Math.max(1, Math.floor(trace.length / Number(states)));
  let looked_at = 0;
  for (let index = 0; index < trace.length; index += every) {
    view.draw(index);
    looked_at += 1;
  }
  const [reserved, allocated] = view.draw(trace.length - 1);
  const blocks = process_alloc_data(snapshot, device, false, Number(drawn));
  const segments = process_alloc_data(snapshot, device, true, Number(drawn));
  for (let element = 0; element < blocks.elements_length; element++) {
    blocks.context_for_id(element);
  }
  return {looked_at, reserved, allocated, blocks: [blocks.max_size, blocks.elements_length],
    segments: segments.max_size};
});
writeFileSync(out, JSON.stringify({plain, devices, categories: snapshot.categories}));
"""


def script(folder):
    """MemoryViz.js without what draws, as one file."""
    path = find(folder, "MemoryViz.js")
    parts = [STUB]
    beside = path.with_name("process_alloc_data.js")
    for part in [beside] if beside.exists() else []:
        parts.append(part.read_text())
    parts.append(path.read_text())
    text, is_left_out = [], False
    for line in "\n".join(parts).splitlines():
        # Imports and exports may span lines.
        is_left_out = is_left_out or line.startswith(("import ", "export {"))
        if is_left_out:
            is_left_out = not line.rstrip().endswith(";")
        else:
            text.append(line.removeprefix("export "))
    return path, "\n".join(text) + HARNESS


def peak_of(snapshot, device):
    """The most bytes of blocks at a time, and how many blocks there ever were."""
    before = [b for s in snapshot["segments"] if s["device"] == device for b in s["blocks"]]
    # The viewer's timeline has no block that was freed and waits for a stream.
    before = {b["address"]: b["requested_size"] for b in before if b["state"] == "active_allocated"}
    for event in reversed(snapshot["device_traces"][device]):
        if event["action"] == "alloc":
            del before[event["addr"]]
        elif event["action"] == "free_completed":
            before[event["addr"]] = event["size"]
    total, blocks, peak = sum(before.values()), len(before), 0
    for event in snapshot["device_traces"][device]:
        if event["action"] == "alloc":
            blocks += 1
            total += event["size"]
        elif event["action"] == "free_completed":
            total -= event["size"]
        peak = max(peak, total)
    return peak, blocks


def check_javascript(snapshot, file, folder):
    """PyTorch's own viewer."""
    path, text = script(folder)
    with tempfile.TemporaryDirectory() as temporary:
        program = pathlib.Path(temporary, "viz.mjs")
        program.write_text(text)
        out = pathlib.Path(temporary, "out.json")
        command = ["node", "--max-old-space-size=8192", program, file, out, str(STATES), str(DRAWN)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"FAIL  {path}: {run.stderr}")
        found = json.loads(out.read_text())
    check("what the viewer unpickles", found["plain"], json.loads(json.dumps(snapshot)))
    for device, seen in enumerate(found["devices"]):
        segments = [s for s in snapshot["segments"] if s["device"] == device]
        total = sum(s["total_size"] for s in segments)
        check("bytes that the viewer says are reserved", seen["reserved"], total)
        requested = sum(s["requested_size"] for s in segments)
        check("bytes that the viewer says are allocated", seen["allocated"], requested)
        expected = list(peak_of(snapshot, device))
        # Blocks too small to be drawn do not count for the viewer's peak.
        if expected[1] <= DRAWN:
            check("peak and blocks of the viewer's timeline", seen["blocks"], expected)
        done(
            f"{path}: cuda:{device}: {seen['looked_at']} states, {seen['blocks'][1]} blocks, peak"
            f" {seen['blocks'][0]} of blocks, {seen['segments']} of segments"
        )
    done(f"{path}: categories {found['categories']}")


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("snapshot")
    parser.add_argument("folder", nargs="?", metavar="DIR")
    arguments = parser.parse_args()
    with open(arguments.snapshot, "rb") as file:
        snapshot = pickle.load(file)
    categories = check_schema(snapshot)
    events = sum(map(len, snapshot["device_traces"]))
    done(f"schema: {events} events, {len(snapshot['segments'])} segments, {categories}")
    for device in range(len(snapshot["device_traces"])):
        check_trace(snapshot, device)
    done("trace: leads to the segments")
    if arguments.folder:
        check_python(snapshot, arguments.folder)
        check_javascript(snapshot, arguments.snapshot, arguments.folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
