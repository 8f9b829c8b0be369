"""Benchmarks: printed beside their goals, without a pass or fail."""

import statistics
from pathlib import Path

from workload import numbers_of, start


def resident_text(pid):
    """Resident memory: the program, its libraries, and pages of the ring buffers."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", maxsplit=1) for line in status)
    mib = {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")}
    return (
        f"{mib['VmRSS']:.1f} MiB, {mib['RssAnon']:.1f} of it anonymous, the rest mapped"
        " (goal: under 20 MB)"
    )


def measure_start_and_idle(bench):
    target = start(bench, "workload")
    target.run("synchronize")
    for name, arguments in (("--pid", ("--pid", str(target.pid))), ("whole host", ())):
        seconds = []
        for _ in range(5):
            tracer = bench.trace(*arguments)
            seconds.append(tracer.wait_tracing())
            tracer.fresh_report()
            resident = resident_text(tracer.pid)
            tracer.finish()
        shown = ", ".join(f"{1000 * s:.0f}" for s in sorted(seconds))
        bench.figure(
            f"start to attached, {name}",
            f"median {1000 * statistics.median(seconds):.0f} ms of {shown} (goal: under 200)",
        )
        bench.figure(f"resident when idle, {name}", resident)
    target.end(bench)


PAIRS = 5000
RUNS = 5


def timed_run(bench, build, traced):
    """Microseconds per cudaMalloc + cudaFree pair."""
    target = start(bench, build)
    target.run("timepairs 200 2048")
    if traced:
        tracer = bench.trace("--pid", str(target.pid))
        tracer.wait_tracing()
    said = numbers_of(target.run(f"timepairs {PAIRS} 2048"))
    if traced:
        _, report = tracer.finish()
        bench.equal("timed pairs seen", PAIRS, report["memleak"]["free_calls"])
    target.end(bench)
    return said["ns"] / PAIRS / 1000


def measure_overhead(bench, build):
    untraced, traced = [], []
    for _ in range(RUNS):
        untraced.append(timed_run(bench, build, traced=False))
        traced.append(timed_run(bench, build, traced=True))
    before, after = statistics.median(untraced), statistics.median(traced)
    bench.figure(
        f"cudaMalloc + cudaFree pair, {build}",
        f"untraced {before:.2f} us, traced {after:.2f} us, ratio {after / before:.3f}"
        f" (medians of {RUNS} runs of {PAIRS} pairs, taken in turn;"
        f" untraced {min(untraced):.2f} to {max(untraced):.2f},"
        f" traced {min(traced):.2f} to {max(traced):.2f})",
    )
