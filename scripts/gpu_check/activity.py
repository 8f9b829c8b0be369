"""Checks of GPU activity from CUPTI: `--activity`."""

import json
import sqlite3
import subprocess
import sys

from children import SLOW_SECONDS
from cost import nsys
from expect import compare_frame
from expect_activity import compare_activity, compare_modes, copies_of, memory_of, off_by_more

ACTIVITY = ("--activity", "--activity-summary")
ALL = (*ACTIVITY, "--memleak", "--cudatrace", "--bandwidth-util")

STEPS = ("init", "mixed", "threads", "graph", "long")

MANY = 1_000_000


def check_activity(bench, program, *options):
    """The program's GPU work, and the durations of the long kernels."""
    recording = bench.directory / f"{program}-activity.sqlite"
    recording.unlink(missing_ok=True)
    tracer = bench.trace(
        *("--record", str(recording), *options, "--", bench.program(program), *STEPS), modes=ALL
    )
    bench.equal("exit status", 0, tracer.wait())
    truth = tracer.truth(STEPS[-1])
    _, report = tracer.finish()
    bench.all_equal(compare_activity(report, truth))
    compare_recording(bench, recording, truth)
    recording.unlink()


def compare_recording(bench, path, truth):
    """Results of SQL queries of the tables that Nsight Systems has too."""
    with sqlite3.connect(path) as db:
        spans = db.execute(
            """SELECT k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
            JOIN StringIds s ON s.id = k.shortName WHERE s.value = 'busy' ORDER BY k.start"""
        ).fetchall()
        found = [span for (span,) in spans]
        bench.equal(
            "long kernels: duration by CUDA events and by CUPTI, where they differ",
            [],
            off_by_more(truth["long_ns"], found),
        )
        bench.figure(bench.label, f"long kernels, ns: events {truth['long_ns']}, CUPTI {found}")
        bench.equal("sums of the recording", sums_of_truth(truth), sums_of(db))
        orphans = db.execute(
            """SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE NOT EXISTS (SELECT 1
            FROM CUPTI_ACTIVITY_KIND_RUNTIME r WHERE r.correlationId = k.correlationId
            AND r.globalTid >> 24 = k.globalPid >> 24)"""
        ).fetchone()[0]
        bench.equal("kernels whose call is not in the recording", 0, orphans)


def sums_of(db):
    """{what: (count, bytes)} of an export or a recording."""
    kernels = db.execute("SELECT count(*), 0 FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    sets = db.execute("SELECT count(*), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMSET").fetchone()
    copies = db.execute(
        "SELECT copyKind, count(*), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY copyKind"
    )
    names = {1: "H2D", 2: "D2H", 8: "D2D"}
    found = {names.get(kind, kind): (count, size) for kind, count, size in copies}
    return found | {"kernels": kernels, "sets": sets}


def sums_of_truth(truth):
    sums = {name: tuple(sum_) for name, sum_ in truth["copies"].items()}
    count = sum(count for count, _ in truth["kernels"].values())
    return sums | {"kernels": (count, 0), "sets": tuple(truth["sets"]["set"])}


def check_same_as_nsys(bench, program):
    """Nsight Systems, if it can export here, finds the same sums in the same program."""
    found = nsys(bench, "activity-nsys")
    if not found:
        bench.figure(bench.label, "no nsys on this machine: NOT CHECKED")
        return
    ((prefix, _),) = found.values()
    whole = ["--export=sqlite", "--cuda-graph-trace=node"]
    done = subprocess.run(
        [*prefix, *whole, bench.program(program), *STEPS],
        capture_output=True,
        text=True,
        check=False,
        timeout=SLOW_SECONDS,
    )
    out = bench.directory / "activity-nsys"
    export = out.with_suffix(".sqlite")
    if not export.exists():
        bench.figure(bench.label, f"nsys could not export: NOT CHECKED: {done.stderr[-300:]!r}")
        return
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    with sqlite3.connect(export) as db:
        bench.equal("sums of nsys", sums_of_truth(lines[-1]), sums_of(db))


def check_activity_pytorch(bench):
    """Launches, copies and allocations equal the GPU's runs and CUPTI's allocations."""
    if bench.is_missing("torch", "triton"):
        return
    command = bench.script("torch_train.py", "init", "train=10", "compiled", "triton")
    tracer = bench.trace("--", *command, modes=ALL, env=bench.environment())
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    _, report = tracer.finish()
    bench.all_equal(compare_frame(report))
    bench.all_equal(compare_modes(report))
    processes = report["activity"]["processes"]
    runs = sum(row["count"] for process in processes for row in process["kernels"])
    bench.figure(
        bench.label,
        f"{runs} runs of kernels, copies and sets {[copies_of(process) for process in processes]},"
        f" allocations {[memory_of(process, 'allocation') for process in processes]}",
    )


def check_markers(bench):
    """NVTX ranges that PyTorch marks once it has used CUDA."""
    if bench.is_missing("torch"):
        return
    program = (
        "import torch\nx = torch.ones(8, device='cuda')\n"
        "with torch.cuda.nvtx.range('outer'):\n x.sum().item()"
    )
    command = [sys.executable, "-c", program]
    modes = ("--activity=kernel,marker", "--activity-summary")
    tracer = bench.trace("--", *command, modes=modes, env=bench.environment())
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    _, report = tracer.finish()
    markers = [process["markers"] for process in report["activity"]["processes"]]
    bench.equal("a range has two ends", [2], markers)


def check_profiler_beside(bench):
    """PyTorch's own profiler in a program under --activity: the program runs on."""
    if bench.is_missing("torch", "triton"):
        return
    command = bench.script("torch_train.py", "init", "profiled=2")
    tracer = bench.trace("--", *command, modes=ACTIVITY, env=bench.environment())
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    _, report = tracer.finish()
    records = report["activity"]["records"]
    said = [line for line in tracer.err.all() if "CUPTI" in line or "collector" in line]
    bench.figure(bench.label, f"{records} records; the last line of the program: "
                 f"{json.dumps(tracer.truths()[-1])[:200]}; said: {said[:3]}")


def check_quick_exit(bench):
    """A program that exits by _exit: missing records are reported."""
    tracer = bench.trace("--", bench.program("activity_shared"), "init", "quick", modes=ACTIVITY)
    bench.equal("exit status", 0, tracer.wait())
    _, report = tracer.finish()
    processes = report["activity"]["processes"]
    complete = [process["complete"] for process in processes]
    records = [process["records"] for process in processes]
    bench.equal("complete", True, not processes or not any(complete))
    bench.figure(bench.label, f"records {records}")


def check_rate(bench, threads):
    """A million launches as fast as they go, with all kinds: nothing is lost."""
    each = MANY // threads
    command = [bench.program("activity_shared"), "init", f"many={each},{threads}"]
    tracer = bench.trace("--", *command, modes=ACTIVITY)
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    truth = tracer.truth("many")
    _, report = tracer.finish()
    bench.all_equal(compare_activity(report, truth))
    records = report["activity"]["records"]
    seconds = truth["ns_per_launch"] * each / 1e9
    bench.figure(
        bench.label,
        f"{records} records in {seconds:.2f} s of launching by {threads} threads:"
        f" {records / seconds / 1e6:.2f} million/s",
    )
