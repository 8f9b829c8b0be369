"""Checks on copies: of the workload, by its own counts and times."""

from children import SLOW_SECONDS
from expect_copies import compare_copies, compare_throughputs, row_at
from workload import direction_of, numbers_of, start, trace

METER = ("--bandwidth-util",)

# From 64 KiB + 1 byte on, a copy from pageable memory no longer returns once its bytes are staged.
SIZES = (1, 4096, 65536, 65537, 1 << 20, 8 << 20)
LINEAR = [
    f"copy {kind} {size} via=cudaMemcpy{{sync}}"
    for kind in ("h2d", "h2d pinned", "d2h", "d2h pinned", "d2d")
    for size in SIZES
]
ROWS = [f"copy {kind} {size}" for kind in ("2d", "2d-d2h", "2d-d2d") for size in (7000, 3 << 20)]
LAYERS = [f"copy {kind} {size}" for kind in ("3d", "3d-d2h", "3d-d2d") for size in (1500, 2_048_000)]
SETS = [f"set {size} via=cudaMemset{way}" for size in SIZES for way in ("{sync}", "Async{async}")]
THREADS = """thread a; thread b; @a copy h2d 1024 500 via=cudaMemcpyAsync{async} pinned
    @b copy h2d 2048 500 via=cudaMemcpyAsync{async} pinned; join a; join b"""
# Copies between memory that is there already: nothing is allocated in a capture.
CAPTURED = """alloc 1048576 2; pinned 1048576; stream; capture {stream}
    copy h2d 1048576 via=cudaMemcpyAsync stream={stream} dst={block} src={host}
    copy d2d 1048576 via=cudaMemcpyAsync stream={stream} dst={other} src={block}
    endcapture {stream}; graphlaunch {exec} 3 stream={stream}; syncstream {stream}"""

# Part of the program's own measurement.
TOLERANCE = 0.05


def ordered(command):
    """`copy KIND pinned SIZE ...` with its option where the workload takes it.

    >>> ordered("copy h2d pinned 8 via=f"), ordered("copy h2d 8")
    ('copy h2d 8 via=f pinned', 'copy h2d 8')
    """
    return command.replace(" pinned", "") + (" pinned" if " pinned" in command else "")


def steps():
    calls = [ordered(command) for command in LINEAR]
    calls += [call.replace("{sync}", "Async{async}") for call in calls]
    for rows, function in ((ROWS, "cudaMemcpy2D"), (LAYERS, "cudaMemcpy3D")):
        calls += [f"{call} via={function}{way}" for call in rows for way in ("{sync}", "Async{async}")]
    return "; ".join((*calls, *SETS, CAPTURED, THREADS))


def check_copies_started(bench, build, *options):
    tracer, workload = trace(bench, build, *options, modes=METER)
    workload.run(steps())
    after = workload.copies()
    workload.end(bench)
    _, report = tracer.finish()
    bench.all_equal(compare_copies(report, after))


def check_copies_late(bench, build, *options):
    """Memory from before the attach is copied from and to."""
    workload = start(bench, build)
    workload.run("alloc 1048576 2; pinned 1048576; copy h2d 1048576 dst={block} src={host}")
    before = workload.copies()
    old = "copy h2d 1048576 dst={block} src={host}; copy d2h 1048576 dst={host} src={block}"
    tracer = bench.trace("--pid", str(workload.pid), *options, modes=METER)
    tracer.wait_tracing()
    workload.run(f"{old}; {steps()}")
    after = workload.copies()
    bench.all_equal(compare_copies(tracer.fresh_report(), after, before))
    status, report = tracer.finish()
    bench.equal("exit status of gpuprobe", 0, status)
    bench.all_equal(compare_copies(report, after, before))
    workload.end(bench)


def check_throughput(bench, build, *options):
    """Large copies: the program's own measurement around the calls."""
    for memory, count in (("pinned", 32), ("pageable", 8)):
        workload = start(bench, build)
        workload.run("copy h2d 4096")
        tracer = bench.trace("--pid", str(workload.pid), *options, modes=METER)
        tracer.wait_tracing()
        before, timed = workload.copies(), {}
        for kind in ["h2d", "d2h"] * count:
            option = "pinned" if memory == "pinned" else ""
            said = numbers_of(workload.run(f"copy {kind} {64 << 20} {option}"))
            timed.setdefault(direction_of(kind), []).append(said)
        after = workload.copies()
        _, report = tracer.finish()
        bench.all_equal(compare_copies(report, after, before))
        for direction, copies in timed.items():
            compare_speed(bench, f"{memory} {direction}", copies, row_at(report, direction))
        workload.end(bench)


def compare_speed(bench, what, copies, row):
    measured = sum(one["bytes"] for one in copies) / sum(one["ns"] for one in copies) * 1e9
    if row is None:
        bench.fail(f"{what} has no row of its own")
        return
    peak = max(one["bytes"] / one["ns"] * 1e9 for one in copies)
    bench.within(f"{what} bytes per second", measured, row["bytes_per_second"], TOLERANCE)
    bench.within(f"{what} peak", peak, row["peak_bytes_per_second"], TOLERANCE)
    share = row["link_utilisation"]
    bench.figure(
        what,
        f"the program {measured / 1e9:.2f} GB/s, gpuprobe {row['bytes_per_second'] / 1e9:.2f} GB/s"
        + ("" if share is None else f", {100 * share:.0f} % of the link"),
    )


UNIFIED = """copy default-h2d 1048576; copy default-h2d 1048576 pinned; copy default-d2h 1048576
    copy default-d2h 1048576 pinned; copy default-d2d 1048576; copy h2h 1048576 pinned"""


def check_unified(bench, build, *options):
    """Copies whose direction only the addresses tell: none is lost, and none is
    given a bandwidth that it does not have; which direction each was found to
    have is shown."""
    for name in ("started", "late"):
        if name == "late":
            workload = start(bench, build)
            workload.run("alloc 4096")
            tracer = bench.trace("--pid", str(workload.pid), *options, modes=METER)
            tracer.wait_tracing()
        else:
            tracer, workload = trace(bench, build, *options, modes=METER)
        workload.run(UNIFIED)
        workload.end(bench)
        _, report = tracer.finish()
        bench.all_equal(compare_throughputs(report))
        rows = report["bandwidth_util"]["directions"]
        found = {f"{row['direction']} {row['mode']}": row["calls"] for row in rows}
        bench.figure(
            f"cudaMemcpyDefault, {name}",
            f"2 H2D, 2 D2H, 1 D2D, and 1 H2H by its kind, were reported as {found}",
        )


def check_copies_by_line(bench):
    """Results read one by one and copies from pageable memory get their advice; those from pinned memory none."""
    if bench.is_missing("torch"):
        return
    tracer = bench.trace("--", *bench.script("torch_python.py", "copies"), modes=METER)
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    sites = tracer.finish()[1]["bandwidth_util"]["sites"]
    for line, direction, *row, advice in tracer.truths()[-1]["copies"]:
        place = f"torch_python.py:{line} "
        found = [one for one in sites if place in one["label"] and one["direction"] == direction]
        bench.equal(f"calls and bytes at {place}", [row], [[one["calls"], one["bytes"]] for one in found])
        told = [one["advice"] for one in found]
        right = told == [advice] if advice is None else len(told) == 1 and (told[0] or "").startswith(advice)
        bench.equal(f"advice at {place}is {advice}, in {told}", True, right)
