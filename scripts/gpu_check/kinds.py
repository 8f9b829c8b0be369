"""Checks of every kind of memory: the program kinds.cu, compared with frameworks, NVML and
compute-sanitizer."""

import os
import shutil
import subprocess

from expect_kinds import (
    MIB,
    compare_kinds,
    compare_nvml,
    compare_process,
    compare_variables,
    compare_virtual,
    leaked_bytes,
    process_of,
)

# A report after each line of these.
STARTED_STEPS = (
    ("init", "plain", "pitched", "managed", "host", "arrays"),
    ("graph",),
    ("graph-launch",),
    ("graph-again", "graph-destroy", "captured"),
    ("free",),
    ("plain", "pitched", "managed", "host", "arrays", "async"),
    ("pool",),
    ("pool-destroy",),
    ("vmm",),
    ("vmm-release",),
    ("vmm-unmap",),
    ("share",),
    ("share-map",),
    ("share-end",),
    ("context",),
    ("context-destroy",),
    ("reset",),
    ("free",),
)
# Attached to at the first wait, compared at the others.
LATE_STEPS = (
    ("init", "plain", "pitched", "managed", "host", "arrays", "async", "vmm"),
    ("plain", "pitched", "managed", "host", "arrays", "async", "pool", "pool-destroy"),
    ("vmm", "vmm-release"),
    ("vmm-unmap", "share", "share-map", "share-end", "graph", "graph-launch"),
    ("free",),
)
EVERYWHERE_STEPS = (
    ("init", "plain", "host", "vmm"),
    ("ipc",),
    ("ipc-close",),
    ("ipc-close",),
)
INTERVAL = "100ms"


def with_waits(groups):
    return [step for group in groups for step in (*group, "wait")]


def compare_pool(bench, report, truth):
    said = truth["pool"]
    pools = process_of(report, truth["pid"])["pools"]
    got = [{name: pool[name] for name in said} for pool in pools if pool["pool"] == said["pool"]]
    bench.equal("pool of its own", [said], got)


def check_kinds_started(bench, program, *options):
    command = (bench.program(program), *with_waits(STARTED_STEPS))
    tracer = bench.trace(*options, "--", *command, interval=INTERVAL)
    for number, group in enumerate(STARTED_STEPS, start=1):
        after = tracer.truth("wait", number)
        report = tracer.fresh_report()
        compare_at(bench, group, compare_kinds(report, [after]))
        if "vmm" in group[0]:
            compare_at(bench, group, compare_virtual(report, after))
        if group == ("pool",):
            compare_pool(bench, report, tracer.truth("pool"))
        tracer.go()
    bench.equal("exit status", 0, tracer.wait())
    tracer.finish()
    bench.figure(bench.label, f"{after['facts']}")


def compare_at(bench, group, comparisons):
    for what, expected, got in comparisons:
        bench.equal(f"after {group[-1]}: {what}", expected, got)


def check_kinds_late(bench, program, *options):
    target = bench.start(bench.program(program), *with_waits(LATE_STEPS))
    before = target.truth("wait")
    tracer = bench.trace("--pid", str(target.pid), *options, interval=INTERVAL)
    tracer.wait_tracing()
    for number, group in enumerate(LATE_STEPS[1:], start=2):
        target.go()
        after = target.truth("wait", number)
        compare_at(bench, group, compare_kinds(tracer.fresh_report(), [after], before))
    tracer.finish()
    target.go()
    bench.equal("exit status of the program", 0, target.wait())


def check_kinds_everywhere(bench, program, *options):
    """Two processes: one exports, the other, which it forked, opens."""
    tracer = bench.trace(*options, interval=INTERVAL)
    tracer.wait_tracing()
    target = bench.start(bench.program(program), *with_waits(EVERYWHERE_STEPS))
    children = {2: ("child-open", 1), 3: ("child-close", 1), 4: ("child-close", 2)}
    for number, group in enumerate(EVERYWHERE_STEPS, start=1):
        afters = [target.truth("wait", number)]
        if number in children:
            afters.append(target.truth(*children[number]))
        report = tracer.fresh_report()
        compare_at(bench, group, compare_kinds(report, afters))
        target.go()
    target.wait()
    tracer.finish()


def check_variables(bench, program, *options):
    steps = with_waits((("init", "statics"), ("managed-static",), ("unload",)))
    command = (bench.program(program), *steps)
    tracer = bench.trace(*options, "--", *command, interval=INTERVAL)
    for number in (1, 2, 3):
        after = tracer.truth("wait", number)
        report = tracer.fresh_report()
        bench.all_equal(compare_variables(report, after))
        bench.all_equal(compare_process(report, after))
        process = process_of(report, after["pid"])
        static = process.get("kinds", {}).get("static", {})
        bench.figure(bench.label, f"{process.get('modules')} modules, variables {static}")
        if after["api"] == "driver" and number == 3:
            bench.equal("variables of the module that is gone", {}, static)
        tracer.go()
    bench.equal("exit status", 0, tracer.wait())
    tracer.finish()


def show_facts(bench, program):
    """What the driver does that no documentation says. That what gpuprobe
    relies on holds is judged, the rest is shown."""
    steps = ("init", "plain", "pitched", "managed", "host", "async", "vmm", "vmm-release", "facts")
    graph = ("init", "graph", "graph-launch", "facts")
    opened = ("init", "ipc", "ipc-reset")
    for line, steps in (("facts", steps), ("facts", graph), ("child-reset", opened)):
        target = bench.start(bench.program(program), *steps)
        bench.equal(f"exit status of {steps[-1]}", 0, target.wait())
        facts = target.truth(line)["facts"]
        bench.figure(f"{bench.label}, {steps[-2]}", f"{facts}")
        for kind, survives in (("async", True), ("vmm", True), ("device", False)):
            error = facts.get(f"free of {kind} after reset")
            if error is not None and "graph" not in steps:
                bench.equal(f"{kind} survives a reset", survives, error == 0)


# ---- compute-sanitizer -------------------------------------------------------


def find_sanitizer():
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    places = (f"{toolkit}/bin", f"{toolkit}/compute-sanitizer")
    return shutil.which("compute-sanitizer") or next(
        filter(None, (shutil.which("compute-sanitizer", path=place) for place in places)), None
    )


def check_sanitizer(bench, program):
    """It counts what is left when the context ends; a report before that must say the same."""
    sanitizer = find_sanitizer()
    if not sanitizer:
        bench.figure(bench.label, "no compute-sanitizer on this machine: NOT CHECKED")
        return
    steps = ("init", "plain", "grow=7")
    command = (bench.program(program), *steps)
    tracer = bench.trace("--", *command, "wait", interval=INTERVAL)
    tracer.truth("wait")
    report = tracer.fresh_report()
    tracer.go()
    tracer.wait()
    tracer.finish()
    options = ("--tool", "memcheck", "--leak-check", "full")
    output = subprocess.run(
        [sanitizer, *options, *command, "reset"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = leaked_bytes(output.stdout + output.stderr)
    if said is None:
        bench.figure(bench.label, f"it cannot run here: {output.stdout[-200:]!r}: NOT CHECKED")
        return
    bench.equal("bytes that compute-sanitizer calls leaked", said, report["memleak"]["live_bytes"])


# ---- NVML --------------------------------------------------------------------

GROWN_BLOCKS = 50


def nvml_bytes(pid):
    """NVML's own figure for a process; None without NVML, or if it does not know."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        used = 0
        for index in range(pynvml.nvmlDeviceGetCount()):
            device = pynvml.nvmlDeviceGetHandleByIndex(index)
            rows = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
            used += sum(row.usedGpuMemory or 0 for row in rows if row.pid == pid)
        return used or None
    except pynvml.NVMLError:
        return None


def check_nvml(bench, program, late):
    """The reconciliation line adds up, and includes the program's memory."""
    steps = with_waits((("init",), (f"grow={GROWN_BLOCKS}",)))
    command = (bench.program(program), *steps)
    if late:
        target = bench.start(*command)
        target.truth("wait")
        tracer = bench.trace("--pid", str(target.pid), interval=INTERVAL)
        tracer.wait_tracing()
    else:
        target = tracer = bench.trace("--", *command, interval=INTERVAL)
    lines = []
    for number in (1, 2):
        pid = target.truth("wait", number)["pid"]
        process = process_of(tracer.fresh_report(), pid)
        lines.append(process.get("nvml"))
        direct = nvml_bytes(pid)
        if lines[-1]:
            bench.all_equal(compare_nvml(process))
            if direct is not None:
                bench.equal("used_bytes as pynvml says", direct, lines[-1]["used_bytes"])
        elif direct is not None and process:
            bench.fail(f"NVML knows of {direct} bytes, the report says nothing")
        target.go()
    target.wait()
    tracer.finish()
    first, second = lines
    if not second:
        bench.figure(bench.label, "NVML does not know the process: NOT CHECKED")
        return
    bench.figure(bench.label, f"{first}, then {second}")
    grown = GROWN_BLOCKS * 2 * MIB
    bench.equal("tracked_bytes", grown, second["tracked_bytes"])
    if first:
        off = abs(second["used_bytes"] - first["used_bytes"] - grown)
        bench.equal("used grew by what was allocated, within 1 MiB", True, off <= MIB)
    if second["context_bytes"] is None:
        bench.equal("the context's part is known of a process seen from its start", True, late)
    else:
        off = abs(second["other_bytes"] - second["context_bytes"])
        bench.equal("the rest is the context, within 1 MiB", True, off <= MIB)
