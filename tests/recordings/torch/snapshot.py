#!/usr/bin/env python3
"""Prints a snapshot of `gpuprobe export --format torch`: its segments with their blocks, and its events."""

import pickle
import sys


def show(what, record):
    address = record.get("address", record.get("addr"))
    known = ("address", "addr", "frames", "blocks")
    print(what, f"{address:#x}", *(f"{key}={value}" for key, value in record.items() if key not in known))


with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
print("settings", snapshot["allocator_settings"])
for segment in snapshot["segments"]:
    for what, record in [("segment", segment), *(("  block", block) for block in segment["blocks"])]:
        show(what, record)
        for frame in record["frames"]:
            print("     ", frame["name"], f"{frame['filename']}:{frame['line']}")
for device, events in enumerate(snapshot["device_traces"]):
    for event in events:
        show(f"cuda:{device}", event)
