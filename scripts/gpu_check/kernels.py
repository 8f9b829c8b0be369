"""Checks on the plain programs' launches: shared, static, and driver API."""

from bench import ALL_MODES
from expect import compare_frame
from expect_launches import compare_launches

TRACE = ("--cudatrace",)

# Each launch function, many times.
STEPS = ("each=1000", "configured", "cooperative", "threads=4,1000", "capture", "graph=23")
# Graphs and modules from before the attach are launched too; then a second graph is.
BEFORE = ("init", "each=10", "configured=2", "capture", "wait")
AFTER = ("graph=23", *STEPS, "wait")


def steps_of(program):
    """Modules are loaded and unloaded by the driver's own functions only."""
    return ("reload",) if program == "launch_driver" else ()


def check_launches_started(bench, program, *options):
    """`options` choose the layer that is traced; it has the functions' names
    if it is the layer that the program calls."""
    tracer = bench.trace(
        *(*options, "--", bench.program(program), "init", *STEPS, *steps_of(program), "each=1"),
        modes=TRACE,
    )
    bench.equal("exit status", 0, tracer.wait())
    after = tracer.truth("each", 2)
    _, report = tracer.finish()
    by_function = program == "launch_driver" or "runtime" in options
    bench.all_equal(compare_launches(report, after, by_function=by_function))
    row = report["cudatrace"]["kernels"][0]
    bench.equal("process", (program, True), (row["comm"], row["exited"]))
    note = f", {after['reused_handles']} handles came again" if steps_of(program) else ""
    bench.figure(bench.label, f"calls {report['cudatrace']['calls']}{note}")


def check_launches_late(bench, program, *options):
    target = bench.start(bench.program(program), *BEFORE, *steps_of(program), *AFTER)
    before = target.truth("wait")
    tracer = bench.trace("--pid", str(target.pid), *options, modes=TRACE)
    tracer.wait_tracing()
    target.go()
    after = target.truth("wait", 2)
    by_function = program == "launch_driver" or "runtime" in options
    bench.all_equal(compare_launches(tracer.fresh_report(), after, before, by_function))
    status, report = tracer.finish()
    bench.equal("exit status of gpuprobe", 0, status)
    bench.all_equal(compare_launches(report, after, before, by_function))
    target.go()
    bench.equal("exit status of the program", 0, target.wait())


def check_launches_everywhere(bench, program):
    """Without --pid, in all modes at once: one program is there already,
    another comes later."""
    present = bench.start(bench.program(program), *BEFORE, *steps_of(program), *AFTER)
    before = present.truth("wait")
    tracer = bench.trace(modes=ALL_MODES)
    tracer.wait_tracing()
    present.go()
    future = bench.start(bench.program(program), "init", *STEPS)
    bench.equal("exit status of the later program", 0, future.wait())
    truths = {
        present.pid: (present.truth("wait", 2), before),
        future.pid: (future.truth("graph"), None),
    }
    tracer.fresh_report()
    _, report = tracer.finish()
    bench.all_equal(compare_frame(report))
    for pid, (after, start) in truths.items():
        bench.all_equal(compare_launches(part_of(report, pid), after, start, by_function=False))
    start = before["copies"]
    copies = sum(after["copies"] for after, _ in truths.values()) - start
    bench.equal("copies", copies, report["bandwidth_util"]["copies"])
    bench.equal("allocations, of the later program only", 1, report["memleak"]["alloc_calls"])
    present.go()
    present.wait()


def part_of(report, pid):
    """The report as it would be had there been that process only.

    >>> rows = [dict(pid=7, launches=2, captured_launches=1),
    ...     dict(pid=8, launches=5, captured_launches=0)]
    >>> trace = dict(launches=7, calls=dict(f=7), kernels=rows, graphs=[dict(pid=8, launches=1)])
    >>> part_of(dict(cudatrace=trace), 7)["cudatrace"]
    ... # doctest: +NORMALIZE_WHITESPACE
    {'launches': 2, 'calls': {'': 2}, 'kernels': [{'pid': 7, 'launches': 2,
     'captured_launches': 1}], 'graphs': [], 'captured_launches': 1, 'graph_launches': 0}
    """
    trace = report["cudatrace"]
    kernels, graphs = (
        [row for row in trace[key] if row["pid"] == pid] for key in ("kernels", "graphs")
    )
    launches = sum(row["launches"] for row in kernels)
    part = {
        "launches": launches,
        "calls": {"": launches},
        "kernels": kernels,
        "graphs": graphs,
        "captured_launches": sum(row["captured_launches"] for row in kernels),
        "graph_launches": sum(row["launches"] for row in graphs),
    }
    return report | {"cudatrace": trace | part}
