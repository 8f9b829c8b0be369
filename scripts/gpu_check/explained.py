"""Checks of leak verdicts: leaks are reported with their line, and nothing else is."""

import json
import sys

from children import SLOW_SECONDS
from expect import losses

CLEAN = {
    "training": "torch",
    "transformers": "torch,transformers",
    "lightning": "torch,lightning",
    "ddp": "torch",
    "jax": "jax",
    "cupy": "cupy",
    "lru": "torch",
}
LEAKS = ("list", "hook", "graphs", "cublas", "nccl")
WATCHED_SECONDS = 75


def leaks_of(explain):
    """The verdicts of growth that are sure enough.

    >>> sure = {"verdict": "growing", "confidence": "likely", "where": "a.py:3 f"}
    >>> unsure = {"verdict": "too early", "confidence": "too early: 3 more seconds"}
    >>> [one["where"] for one in leaks_of({"verdicts": [sure, unsure, {"verdict": "cache", "confidence": "likely"}]})]
    ['a.py:3 f']
    """
    return [one for one in explain["verdicts"] if one["verdict"].startswith("growing")]


def check_verdicts(bench):
    """All programs at once, each explained by a gpuprobe of its own that comes late; one from its start."""
    if bench.is_missing("torch"):
        return
    names = [name for name, needs in CLEAN.items() if not bench.is_missing(*needs.split(","))]
    env = bench.environment()
    programs = {name: bench.start(*bench.script("explained.py", name), env=env) for name in (*names, *LEAKS)}
    truths = {name: program.truth("loop", 1, SLOW_SECONDS) for name, program in programs.items()}
    answers = {name: bench.directory / f"explain-{name}.json" for name in programs}
    duration = ("--duration", f"{WATCHED_SECONDS}s", "--format", "json")
    tracers = {
        name: bench.start(
            bench.gpuprobe, "explain", "--pid", str(truths[name]["pid"]), *duration, "-o", str(answers[name])
        )
        for name in programs
    }
    answers["list, started"] = bench.directory / "explain-started.json"
    command = (sys.executable, str(bench.sources / "explained.py"), "list")
    tracers["list, started"] = bench.start(
        bench.gpuprobe, "explain", *duration, "-o", str(answers["list, started"]), "--", *command
    )
    truths["list, started"] = truths["list"]
    for name, tracer in tracers.items():
        if name in programs:
            tracer.wait(WATCHED_SECONDS + SLOW_SECONDS)
    # gpuprobe has exited, or goes on with its command.
    for program in programs.values():
        program.go()
    tracers["list, started"].go()
    tracers["list, started"].wait(SLOW_SECONDS)
    for name, path in answers.items():
        report = json.loads(path.read_text().splitlines()[-1])
        found, leak = leaks_of(report["explain"]), truths[name]["leak"]
        said = [f"{one.get('where')}: {one['evidence'][0]}" for one in found]
        if leak:
            place = f"{leak['file']}:{leak['line']}"
            named = any(place in (one.get("where") or "") for one in found)
            bench.equal(f"{name}: {place} is named, of {said[:5]}", True, named)
        else:
            bench.equal(f"{name}: leaks", [], said)
        bench.figure(f"verdicts, {name}", f"{len(report['explain']['verdicts'])} verdicts; {said[:2]}")
        bench.figure(f"lost, {name}", f"{losses(report)}")
