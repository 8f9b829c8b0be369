"""Checks on the plain programs' copies."""

from expect_copies import compare_copies, compare_throughputs, row_at

METER = ("--bandwidth-util",)

STEPS = ("linear", "async", "planes", "volumes", "sets", "captured", "threads")

# Part of the program's own measurement.
TOLERANCE = 0.05


def check_copies_started(bench, program, *options):
    tracer = bench.trace(*options, "--", bench.program(program), "init", *STEPS, modes=METER)
    bench.equal("exit status", 0, tracer.wait())
    after = tracer.truth(STEPS[-1])
    _, report = tracer.finish()
    bench.all_equal(compare_copies(report, after))


def check_copies_late(bench, program, *options):
    """Memory from before the attach is copied from and to."""
    target = bench.start(bench.program(program), "init", "linear", "wait", *STEPS, "wait")
    before = target.truth("wait")
    tracer = bench.trace("--pid", str(target.pid), *options, modes=METER)
    tracer.wait_tracing()
    target.go()
    after = target.truth("wait", 2)
    bench.all_equal(compare_copies(tracer.fresh_report(), after, before))
    status, report = tracer.finish()
    bench.equal("exit status of gpuprobe", 0, status)
    bench.all_equal(compare_copies(report, after, before))
    target.go()
    bench.equal("exit status of the program", 0, target.wait())


def check_throughput(bench, program, *options):
    """Large copies: the program's own measurement around the calls."""
    target = bench.start(
        *(bench.program(program), "init", "linear", "wait"),
        *("pinned=64,32", "wait", "pageable=64,8", "wait"),
    )
    before = target.truth("wait")
    for number, memory in enumerate(("pinned", "pageable"), start=2):
        tracer = bench.trace("--pid", str(target.pid), *options, modes=METER)
        tracer.wait_tracing()
        target.go()
        after = target.truth("wait", number)
        _, report = tracer.finish()
        bench.all_equal(compare_copies(report, after, before))
        before = after
        for timed in after["timed"]:
            if timed["memory"] == memory:
                compare_speed(bench, timed, row_at(report, timed["direction"]))
    target.go()
    target.wait()


def compare_speed(bench, timed, row):
    what = f"{timed['memory']} {timed['direction']}"
    measured = timed["bytes"] / timed["seconds"]
    if row is None:
        bench.fail(f"{what} has no row of its own")
        return
    bench.within(f"{what} bytes per second", measured, row["bytes_per_second"], TOLERANCE)
    bench.within(
        *(f"{what} peak", timed["peak_bytes_per_second"], row["peak_bytes_per_second"]), TOLERANCE
    )
    share = row["link_utilisation"]
    bench.figure(
        what,
        f"the program {measured / 1e9:.2f} GB/s, gpuprobe {row['bytes_per_second'] / 1e9:.2f} GB/s"
        + ("" if share is None else f", {100 * share:.0f} % of the link"),
    )


def check_unified(bench, program, *options):
    """Copies whose direction only the addresses tell: none is lost, and none is
    given a bandwidth that it does not have; which direction each was found to
    have is shown."""
    for name, arguments in (("started", None), ("late", ("init", "wait", "unified", "wait"))):
        if arguments:
            target = bench.start(bench.program(program), *arguments)
            target.truth("wait")
            tracer = bench.trace("--pid", str(target.pid), *options, modes=METER)
            tracer.wait_tracing()
            target.go()
            target.truth("wait", 2)
        else:
            tracer = bench.trace(
                *(*options, "--", bench.program(program), "init", "unified"), modes=METER
            )
            tracer.wait()
        _, report = tracer.finish()
        bench.all_equal(compare_throughputs(report))
        rows = report["bandwidth_util"]["directions"]
        found = {f"{row['direction']} {row['mode']}": row["calls"] for row in rows}
        bench.figure(
            f"cudaMemcpyDefault, {name}",
            f"2 H2D, 2 D2H, 1 D2D, and 1 H2H by its kind, were reported as {found}",
        )
