"""Checks of objects that take memory outside of call sites: they are counted, and named with their line."""

from collections import namedtuple

from children import SLOW_SECONDS
from explained import compare, explained, objects
from kinds import nvml_bytes

# Handles are called a leak after 57 s; a context takes most of its pause to make.
SECONDS = 75
MIB = 1 << 20

# How many are made alone, the pause between two when they are explained, gpuprobe's name for them if they have
# handles, and whether the GPU's memory grows with each.
Kind = namedtuple("Kind", "alone pause_ms name grows", defaults=(None, False))
OBJECTS = {
    "streams": Kind(256, 50, "stream", True),
    "events": Kind(8192, 5, "event"),
    "executables": Kind(512, 50, "graph executable"),
    "graphs": Kind(16, 200),
    "modules": Kind(64, 250, "module"),
    "libraries": Kind(64, 250, "library"),
    "contexts": Kind(4, 2500, "context", True),
    "plans": Kind(16, 400, "cuFFT plan"),
    "blas": Kind(16, 400, "cuBLAS handle"),
    "pinned": Kind(16, 100),
}


def of_kind(process, kind, place):
    """What a process has made of a kind at a place: created and live.

    >>> one = {"kind": "stream", "where": "a.cu:3 make", "created": 5, "live": 4}
    >>> of_kind({"handles": [one, one | {"kind": "event"}]}, "stream", "a.cu:3"), of_kind({}, "stream", "a.cu:3")
    ((5, 4), (0, 0))
    """
    found = [one for one in process.get("handles", []) if one["kind"] == kind and place in one["where"]]
    return sum(one["created"] for one in found), sum(one["live"] for one in found)


def verdicts_of(report, verdict):
    return [one for one in report["explain"]["verdicts"] if one["verdict"] == verdict]


def held_at(process, place, kind=None):
    """Bytes of the call sites at a place; of one kind of memory only."""
    sites = [site for site in process["sites"] if place in site["label"]]
    return sum(site["live_bytes"] + site["host_bytes"] for site in sites if kind in (None, *site["kinds"]))


def alone(bench, name):
    """Bytes that each takes by cudaMemGetInfo and by NVML, when nothing else uses the GPU."""
    count = OBJECTS[name].alone
    program = bench.start(bench.program("objects"), name, str(count), "0")
    program.truth("ready")
    before = nvml_bytes(program.pid)
    program.go()
    grown = program.truth("loop", seconds=SLOW_SECONDS)["grown"]
    after = nvml_bytes(program.pid)
    program.go()
    bench.equal(f"{name}: exit status alone", 0, program.wait())
    return grown / count, None if None in (before, after) else (after - before) / count


def check_objects(bench):
    """All kinds at once; before, each alone, for its bytes."""
    taken = {name: alone(bench, name) for name in OBJECTS}
    commands = {name: objects(bench, name, SECONDS, kind.pause_ms) for name, kind in OBJECTS.items()}
    if not bench.is_missing("jax"):
        commands["constants"] = bench.script("jit_constants.py", str(SECONDS))
    answers = explained(bench, commands)
    for name, answer in answers.items():
        compare(bench, name, answer)
    said = {name: check_kind(bench, name, answer) for name, answer in answers.items()}
    for name, sizes in taken.items():
        by_cuda, by_nvml = ("unknown" if one is None else f"{one / MIB:8.4f}" for one in sizes)
        figures = f"cudaMemGetInfo {by_cuda}, NVML {by_nvml}, gpuprobe {said[name][0] / MIB:8.4f}"
        bench.figure(f"MiB for each of {name:11}", f"{figures}  {said[name][1]}")


def check_kind(bench, name, answer):
    """(bytes of each, the first evidence), as gpuprobe says"""
    truth, _, report = answer
    processes = [one for one in report["memleak"]["processes"] if one["traced"]]
    process = max(processes, key=lambda one: len(one.get("handles", [])))
    place, made, known = f"{truth['leak']['file']}:{truth['leak']['line']} ", truth["made"], truth["bytes"]
    kind = OBJECTS.get(name, Kind(0, 0))
    if kind.name:
        bench.equal(f"{name} at {place}", (made, made), of_kind(process, kind.name, place))
    left = [one for one in verdicts_of(report, "handles left behind") if place in (one["where"] or "")]
    growth = verdicts_of(report, "growing outside of call sites")
    outside = [said for one in growth for said in one["evidence"]]
    if kind.grows:
        bench.equal(f"{place}is named beside growth, of {outside[:5]}", True, any(place in one for one in outside))
    if name == "contexts":
        primary = [said for one in verdicts_of(report, "context") for said in one["evidence"]]
        told = any(one.startswith("primary context of GPU 0 made at objects.cu:") for one in primary)
        bench.equal(f"the line of the primary context is told, in {primary}", True, told)
    if name == "graphs":
        bench.equal("bytes that graphs asked for", known, held_at(process, place, "graph"))
        reserved = any("graphs asked for" in one for one in outside)
        bench.equal(f"the driver's share for graphs is told, in {outside[:5]}", True, reserved)
    elif known:
        # Beside its workspace, a plan has tables.
        held = held_at(process, place)
        bench.equal(f"{held} bytes at {place}, of {known}", True, held >= known)
    if name == "plans":
        unnamed = [site["label"] for site in process["sites"] if site["label"].startswith("libcufft")]
        bench.equal("labels without a line", [], unnamed)
    grown = sum(one["bytes"] for one in left) or held_at(process, place) + sum(one["bytes"] for one in growth)
    return grown / made, [one["evidence"][0] for one in left + growth][:1]
