"""Benchmarks: printed beside their goals, without a pass or fail."""

import statistics
from pathlib import Path


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
    target = bench.start(bench.program("leak_shared"), "init", "wait")
    target.truth("wait")
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
    target.go()
    target.wait()


PAIRS = 5000
RUNS = 5


def timed_run(bench, program, traced):
    """Microseconds per cudaMalloc + cudaFree pair."""
    target = bench.start(bench.program(program), "init", "time=200", "wait", f"time={PAIRS}")
    target.truth("wait")
    if traced:
        tracer = bench.trace("--pid", str(target.pid))
        tracer.wait_tracing()
    target.go()
    target.wait()
    timed = target.truth("time", 2)
    if traced:
        _, report = tracer.finish()
        bench.equal("timed pairs seen", PAIRS, report["memleak"]["free_calls"])
    return timed["ns_per_pair"] / 1000


def measure_overhead(bench, program):
    untraced, traced = [], []
    for _ in range(RUNS):
        untraced.append(timed_run(bench, program, traced=False))
        traced.append(timed_run(bench, program, traced=True))
    before, after = statistics.median(untraced), statistics.median(traced)
    bench.figure(
        f"cudaMalloc + cudaFree pair, {program}",
        f"untraced {before:.2f} us, traced {after:.2f} us, ratio {after / before:.3f}"
        f" (medians of {RUNS} runs of {PAIRS} pairs, taken in turn;"
        f" untraced {min(untraced):.2f} to {max(untraced):.2f},"
        f" traced {min(traced):.2f} to {max(traced):.2f})",
    )
