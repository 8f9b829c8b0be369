"""Checks on call stacks and leaks: against compute-sanitizer's, and through PyTorch to the interpreter."""

import subprocess

from cost import find
from expect_kinds import process_of
from expect_stacks import frames_of, holes, leaked_bytes, of_program, order_of, sanitizer_leaks
from workload import trace

# From CUDA's innermost function outwards.
THROUGH_PYTORCH = ["cudaMalloc", "libc10_cuda", "libtorch", "_PyEval", "_start"]


def sites_of(report, pid=None):
    processes = report["memleak"]["processes"]
    chosen = processes if pid is None else [process_of(report, pid)]
    return [site for process in chosen for site in process.get("sites", [])]


def sanitizer_output(bench, *command):
    """What compute-sanitizer says of the program's leaks; None, with a line, if it is not here."""
    sanitizer = find("compute-sanitizer", "bin/compute-sanitizer", "compute-sanitizer/compute-sanitizer")
    if not sanitizer:
        bench.figure(bench.label, "no compute-sanitizer on this machine: NOT CHECKED")
        return None
    options = ("--tool", "memcheck", "--leak-check", "full", "--show-backtrace", "yes")
    done = subprocess.run(
        [sanitizer, *options, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.stdout + done.stderr


def check_sanitizer(bench, build):
    """It counts what is left when the context ends; a report before that must say the same."""
    commands = "alloc 3145728 2; timepairs 1 3145728; alloc 2097152 7"
    output = sanitizer_output(bench, bench.program(build), "-c", f"{commands}; reset; exit")
    if output is None:
        return
    tracer, workload = trace(bench, build)
    workload.run(commands)
    report = tracer.fresh_report()
    workload.end(bench)
    tracer.finish()
    said = leaked_bytes(output)
    if said is None:
        bench.figure(bench.label, f"it cannot run here: {output[-200:]!r}: NOT CHECKED")
        return
    bench.equal("bytes that compute-sanitizer calls leaked", said, report["memleak"]["live_bytes"])


def check_stacks_sanitizer(bench, program):
    """Each leak of the program of the real export has the functions in compute-sanitizer's
    report."""
    expected = sanitizer_sites(bench, program)
    if expected is None:
        return
    bench.figure("functions", f"{expected}")
    for mode in ("auto", "dwarf", "fp"):
        tracer = bench.trace("--stacks", mode, "--full-stacks", "--", bench.program(program))
        bench.equal("exit status", 0, tracer.wait())
        _, report = tracer.finish()
        ours = sorted(
            (site["live_bytes"], of_program(frames_of(site), program))
            for site in sites_of(report)
            if site["live_bytes"]
        )
        if mode == "fp":
            ours, expected = [site[0] for site in ours], [site[0] for site in expected]
        bench.equal(f"sites, {mode}", expected, ours)


def sanitizer_sites(bench, program):
    output = sanitizer_output(bench, bench.program(program), "reset")
    leaks = sanitizer_leaks(output or "")
    if not leaks:
        if output is not None:
            bench.figure(bench.label, f"compute-sanitizer said no leaks: {output[-300:]!r}: NOT CHECKED")
        return None
    sites = {}
    for size, frames in leaks:
        functions = tuple(of_program(frames, program))
        # Frames with the same functions at other offsets are sites of their own.
        key = (functions, str(frames))
        sites[key] = sites.get(key, 0) + size
    return sorted((size, list(functions)) for (functions, _), size in sites.items())


def check_stacks_pytorch(bench):
    """From cudaMalloc through libtorch to the interpreter and its start, without a hole."""
    command = bench.torch("init", "first", "second", "matmul", "wait")
    for after, report, _ in bench.waits(command, "--full-stacks"):
        sites = sites_of(report, after["pid"])
        own = [site for site in sites if site["api"] == "cudaMalloc" and site["live_bytes"]]
        bench.equal("there are sites of cudaMalloc", True, bool(own))
        bench.equal(
            "bytes of all sites",
            process_of(report, after["pid"])["live_bytes"],
            sum(site["live_bytes"] for site in sites),
        )
        for site in own:
            bench.equal(f"holes of {frames_of(site)}", [], holes(site))
            places = order_of(site, THROUGH_PYTORCH)
            known = [place for place in places if place is not None]
            bench.equal(f"order of {THROUGH_PYTORCH}", sorted(known), places)
        whole = sum(site["complete"] and not holes(site) for site in sites)
        bench.figure("call sites", f"{len(sites)}, of them {whole} without a hole")
        for site in filter(holes, sites):
            bench.figure("a hole", f"{site['api']}: {holes(site)} {frames_of(site)[-6:]}")
        deepest = max(own, key=lambda site: len(site["stack"]))
        bench.figure("a stack", " < ".join(name for name, _ in frames_of(deepest)))
