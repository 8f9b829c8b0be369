"""Checks of objects that take memory outside of call sites: they are counted, and named with their line."""

import json

from children import SLOW_SECONDS
from expect import losses

RUN_SECONDS = 75
# The program's name for them, gpuprobe's, and whether the GPU's memory is known to grow beside them.
OBJECTS = {
    "streams": ("stream", True),
    "events": ("event", False),
    "modules": ("module", False),
    "contexts": ("context", True),
}
MIB = 1 << 20


def of_kind(process, kind, place):
    """What a process has made of a kind at a place: created and live.

    >>> one = {"kind": "stream", "where": "a.cu:3 make", "created": 5, "live": 4}
    >>> of_kind({"handles": [one, one | {"kind": "event"}]}, "stream", "a.cu:3"), of_kind({}, "stream", "a.cu:3")
    ((5, 4), (0, 0))
    """
    found = [one for one in process.get("handles", []) if one["kind"] == kind and place in one["where"]]
    return sum(one["created"] for one in found), sum(one["live"] for one in found)


def evidence_of(explain, verdict):
    """What led to such verdicts.

    >>> evidence_of({"verdicts": [{"verdict": "growing", "evidence": ["a", "b"]}]}, "growing")
    ['a', 'b']
    """
    return [said for one in explain["verdicts"] if one["verdict"] == verdict for said in one["evidence"]]


def explained(bench, *command):
    """(what the program says, the only process that made something, the explanation)"""
    answer = bench.directory / f"objects-{command[-2].rpartition('/')[2]}.json"
    command = (bench.gpuprobe, "explain", "--format", "json", "-o", str(answer), "--", *command)
    tracer = bench.start(*command, env=bench.environment())
    truth = tracer.truth("objects", 1, RUN_SECONDS + SLOW_SECONDS)
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    report = json.loads(answer.read_text().splitlines()[-1])
    bench.figure("lost", f"{losses(report)}")
    processes = [one for one in report["memleak"]["processes"] if one["traced"]]
    return truth, max(processes, key=lambda one: len(one.get("handles", []))), report["explain"]


def check_objects(bench, name):
    kind, grows = OBJECTS[name]
    truth, process, explain = explained(bench, bench.program("objects"), name, str(RUN_SECONDS))
    place, made = f"objects.cu:{truth['line']}", truth["made"]
    bench.equal(f"{name} at {place}", (made, made), of_kind(process, kind, place))
    said = evidence_of(explain, "handles left behind")
    named = [one for one in said if one.startswith(f"{made} {kind}s ") and place in one]
    bench.equal(f"{place} is named, of {said[:5]}", 1, len(named))
    growth = evidence_of(explain, "growing outside of call sites")
    if grows and truth["grown"] >= 64 * MIB:
        bench.equal(f"growth is told beside {name}, in {growth[:5]}", True, any(place in one for one in growth))
    bench.figure(f"one of {made} {name}", f"{truth['grown'] / made / MIB:.3f} MiB by cudaMemGetInfo; {growth[:1]}")


def check_graph_memory(bench):
    truth, process, explain = explained(bench, bench.program("objects"), "graphs", str(RUN_SECONDS))
    asked = sum(site["live_bytes"] for site in process["sites"] if site["kinds"] == ["graph"])
    bench.equal("bytes that graphs asked for", truth["bytes"], asked)
    growth = evidence_of(explain, "growing outside of call sites")
    reserved = any("graphs asked for" in one for one in growth)
    bench.equal(f"what the driver reserves beside them is told, in {growth[:5]}", True, reserved)
    bench.figure("graphs", f"{truth['grown'] / truth['made'] / MIB:.1f} MiB each by cudaMemGetInfo")


def check_constants(bench):
    if bench.is_missing("jax"):
        return
    truth, process, explain = explained(bench, *bench.script("jit_constants.py", str(RUN_SECONDS)))
    place = f"jit_constants.py:{truth['line']}"
    all_sites = [site for site in process["sites"] if "static" in site["kinds"]]
    sites = [site for site in all_sites if place in site["label"]]
    seen = [(site["label"], site["live_bytes"]) for site in all_sites[:5]]
    bench.equal(f"constants at {place}, of {seen}", True, sum(one["live_bytes"] for one in sites) >= truth["bytes"])
    grown = [one for one in explain["verdicts"] if one["grade"] == "LEAK" and place in (one.get("where") or "")]
    verdicts = [(one["verdict"], one.get("where"), one["confidence"]) for one in explain["verdicts"][:6]]
    bench.equal(f"{place} is a leak, of {verdicts}", True, len(grown) > 0)
