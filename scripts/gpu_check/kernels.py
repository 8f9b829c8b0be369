"""Checks on launches: of the workload, and of a program that nvcc compiled."""

from bench import ALL_MODES
from expect import compare_frame
from expect_launches import compare_launches
from workload import start, trace

TRACE = ("--cudatrace",)

# Each launch function, many times; every kernel in one shape and by one function. Real kernels are
# loaded when they are first launched, which a capture forbids.
LOADED = "launch 0 1 via={kernel}; launch 1 1 via={kernel}; stream"
STEPS = """launch 0 1000 via={kernel}; launch 1 1000 via={kernel}
    launch 3 200 via={ex} grid=5,4,3 block=4,8,16
    launch 2 100 via={coop} grid=2,2,1 block=128,1,2
    thread a; thread b; @a launch 0 1000 via={kernel}; @b launch 1 1000 via={kernel}; join a; join b"""
STORM = "launchstorm 4 1000"
CAPTURE = """capture {stream}; launch 0 2 stream={stream} via={kernel}
    launch 1 3 stream={stream} via={kernel}; endcapture {stream}"""
GRAPH = "graphlaunch {exec} 23 stream={stream}; syncstream {stream}"
# A handle may be another kernel's once its module is unloaded.
RELOAD = "; ".join(
    f"module {name} via={via}; launch {name} 10 via={{kernel}} grid={grid}; synchronize; unload {{module}}"
    for _ in range(5)
    for via in ("module", "library")
    for name, grid in (("alpha", "1,2,1"), ("beta", "2,1,3"))
)


def reload_of(build):
    """Modules are loaded and unloaded by the driver's own functions only."""
    return RELOAD if build == "workload_driver" else ""


def is_named(build, options):
    """Whether the layer that is traced is the one that the program calls."""
    return build == "workload_driver" or "runtime" in options


def check_launches_started(bench, build, *options):
    tracer, workload = trace(bench, build, *options, modes=TRACE)
    workload.run(f"{LOADED}; {STEPS}; {CAPTURE}; {GRAPH}; {reload_of(build)}; launch 0 1 via={{kernel}}; synchronize")
    after = workload.launches()
    workload.end(bench)
    _, report = tracer.finish()
    bench.all_equal(compare_launches(report, after, by_function=is_named(build, options)))
    row = report["cudatrace"]["kernels"][0]
    bench.equal("process", (build, True), (row["comm"], row["exited"]))
    bench.figure(bench.label, f"calls {report['cudatrace']['calls']}")


def check_launches_late(bench, build, *options):
    """Graphs and modules from before the attach are launched too; then a second graph is."""
    workload = start(bench, build)
    workload.run(f"{LOADED}; {CAPTURE}; launch 3 2 via={{ex}} grid=5,4,3 block=4,8,16")
    before = workload.launches()
    tracer = bench.trace("--pid", str(workload.pid), *options, modes=TRACE)
    tracer.wait_tracing()
    workload.run(f"{reload_of(build)}; {GRAPH}; {STEPS}; {CAPTURE}; {GRAPH}; synchronize")
    after = workload.launches()
    named = is_named(build, options)
    bench.all_equal(compare_launches(tracer.fresh_report(), after, before, named))
    status, report = tracer.finish()
    bench.equal("exit status of gpuprobe", 0, status)
    bench.all_equal(compare_launches(report, after, before, named))
    workload.end(bench)


def check_launches_everywhere(bench, build):
    """Without --pid, in all modes at once: one program is there already,
    another comes later."""
    present = start(bench, build)
    present.run(f"{LOADED}; {CAPTURE}")
    before = present.launches()
    tracer = bench.trace(modes=ALL_MODES)
    tracer.wait_tracing()
    future = start(bench, build)
    future.run("synchronize")
    tracer.fresh_report()  # by then it is traced
    present.run(f"{reload_of(build)}; {GRAPH}; {STEPS}; {CAPTURE}; {GRAPH}; synchronize")
    future.run(f"{LOADED}; {STEPS}; {STORM}; copy h2d 4096 3; synchronize")
    later = future.launches()
    future.end(bench)
    tracer.fresh_report()
    _, report = tracer.finish()
    bench.all_equal(compare_frame(report))
    for after, first in ((present.launches(), before), (later, None)):
        bench.all_equal(compare_launches(part_of(report, after["pid"]), after, first, by_function=False))
    bench.equal("copies, of the later program only", 3, report["bandwidth_util"]["copies"])
    bench.equal("allocations, of the later program only", 1, report["memleak"]["alloc_calls"])
    present.end(bench)


# What tests/gpu/allocations.cu launches by <<<>>>, and captures.
K1 = {"mangled": "_Z2k1Pfi", "name": "k1(float*, int)", "launches": 101, "captured": 5}
K2 = {"mangled": "_Z2k2IfEvPT_i", "name": "void k2<float>(float*, int)", "launches": 103, "captured": 0}
SHAPE = {"grid": (1024, 1, 1), "block": (256, 1, 1), "function": "cudaLaunchKernel"}


def check_compiled(bench, program, *options):
    """Kernels of a program that nvcc compiled, by <<<>>>."""
    tracer = bench.trace(*options, "--", bench.program(program), modes=TRACE)
    bench.equal("exit status", 0, tracer.wait())
    _, report = tracer.finish()
    pid = report["cudatrace"]["kernels"][0]["pid"]
    after = {"pid": pid, "graphs": 1, "graph_launches": 23, "kernels": [K1 | SHAPE, K2 | SHAPE]}
    bench.all_equal(compare_launches(report, after, by_function="runtime" in options))


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
