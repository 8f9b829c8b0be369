"""Checks of GPU activity from CUPTI: `--activity`."""

import json
import sqlite3
import subprocess
import sys
import time

from children import SLOW_SECONDS
from cost import nsys
from expect import compare_frame
from expect_activity import add, compare_activity, compare_modes, copies_of, memory_of
from workload import start, trace

ACTIVITY = ("--activity",)
ALL = (*ACTIVITY, "--memleak", "--cudatrace", "--bandwidth-util")

BUSY_NS = 50_000_000
# Longer than the kernel's loop by its launch and its end.
TOLERANCE = 0.01
MANY = 1_000_000

LOADED = "module busy_50ms via=library; launch busy_50ms 1; launch 0 1; stream; synchronize"
MIXED = "; ".join(
    f"set {kib << 10}; copy h2d {kib << 10} pinned; copy d2d {kib << 10}; launch 1 2; launch 0 3 stream={{stream}}; "
    f"copy d2h {kib << 10} pinned; alloc {kib << 10}; pinned {kib << 10}; managed {kib << 10}; async {kib << 10}"
    for kib in (1, 4, 64)
)
THREADS = "; ".join(
    f"thread t{i}; @t{i} copy h2d 4096 200 via=cudaMemcpyAsync{{async}} pinned; @t{i} launch 0 200; join t{i}"
    for i in range(4)
)
LONG = "launch busy_50ms 5; synchronize; kfreeall; freeall; synchronize"
STEPS = f"{LOADED}; {MIXED}; {THREADS}; launchstorm 4 200; {LONG}"
CAPTURED = "capture {stream}; launch 0 2 stream={stream}; launch 1 1 stream={stream}; endcapture {stream}"
GRAPH = "graphlaunch {exec} 10 stream={stream}; syncstream {stream}"


def check_activity(bench, build):
    """The program's GPU work, and the durations of the long kernels."""
    recording = bench.directory / f"{build}-activity.sqlite"
    recording.unlink(missing_ok=True)
    tracer, workload = trace(bench, build, "--record", str(recording), modes=ALL)
    workload.run(STEPS)
    after, moved, did = workload.launches(), workload.copies(), workload.memory()
    workload.end(bench)
    _, report = tracer.finish()
    bench.all_equal(compare_activity(report, after))
    bench.all_equal(compare_modes(report))
    compare_recording(bench, recording, sums_of_truth(did, moved))
    recording.unlink()
    # CUPTI has the kernels that ran, and not those that were captured.
    tracer, workload = trace(bench, build, modes=ACTIVITY)
    workload.run(f"{LOADED}; launch 1 1; {CAPTURED}; {GRAPH}")
    after = workload.launches()
    workload.end(bench)
    bench.all_equal(compare_activity(tracer.finish()[1], after))


def compare_recording(bench, path, sums):
    """Results of SQL queries of the tables that Nsight Systems has too."""
    with sqlite3.connect(path) as db:
        spans = db.execute(
            """SELECT k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
            JOIN StringIds s ON s.id = k.shortName WHERE s.value = 'busy_50ms' ORDER BY k.start"""
        ).fetchall()
        found = [span for (span,) in spans]
        bench.equal("long kernels", 6, len(found))
        for span in found:
            bench.within("duration of a long kernel", BUSY_NS, span, TOLERANCE)
        bench.equal("sums of the recording", sums, sums_of(db))
        orphans = db.execute(
            """SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE NOT EXISTS (SELECT 1
            FROM CUPTI_ACTIVITY_KIND_RUNTIME r WHERE r.correlationId = k.correlationId
            AND r.globalTid >> 24 = k.globalPid >> 24)"""
        ).fetchone()[0]
        bench.equal("kernels whose call is not in the recording", 0, orphans)


def sums_of(db):
    """{what: count, or (count, bytes)} of an export or a recording."""
    kernels = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
    sets = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET").fetchone()[0]
    copies = db.execute("SELECT copyKind, count(*), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY copyKind")
    names = {1: "H2D", 2: "D2H", 8: "D2D"}
    found = {names.get(kind, kind): (count, size) for kind, count, size in copies}
    return found | {"kernels": kernels, "sets": sets}


def sums_of_truth(did, moved):
    """The same by the workload's status and its copies.

    >>> moves = [dict(direction="H2D", calls=2, size=8), dict(direction="set", calls=1, size=8)]
    >>> sums_of_truth(dict(launches=3, sets=1), dict(moves=moves))
    {'H2D': (2, 16), 'kernels': 3, 'sets': 1}
    """
    sums = {}
    for row in moved["moves"]:
        if row["direction"] != "set":
            add(sums, row["direction"], row["calls"], row["calls"] * row["size"])
    return sums | {"kernels": did["launches"], "sets": did["sets"]}


def check_same_as_nsys(bench, build):
    """Nsight Systems, if it can export here, finds the same sums in the same program."""
    found = nsys(bench, "activity-nsys")
    if not found:
        bench.figure(bench.label, "no nsys on this machine: NOT CHECKED")
        return
    ((prefix, _),) = found.values()
    alone = start(bench, build)
    alone.run(STEPS)
    sums = sums_of_truth(alone.memory(), alone.copies())
    alone.end(bench)
    commands = f"{STEPS}; exit".format(**alone.names)
    done = subprocess.run(
        [*prefix, "--export=sqlite", bench.program(build), "-c", commands],
        capture_output=True,
        text=True,
        check=False,
        timeout=SLOW_SECONDS,
    )
    export = bench.directory / "activity-nsys.sqlite"
    if not export.exists():
        bench.figure(bench.label, f"nsys could not export: NOT CHECKED: {done.stderr[-300:]!r}")
        return
    with sqlite3.connect(export) as db:
        bench.equal("sums of nsys", sums, sums_of(db))


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
    modes = ("--activity=kernel,marker",)
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
    tracer, workload = trace(bench, "workload", modes=ACTIVITY)
    workload.run("launch 0 10")
    workload.child.tell("quit")
    bench.equal("exit status", 0, tracer.wait())
    _, report = tracer.finish()
    processes = report["activity"]["processes"]
    bench.equal("complete", True, not any(process["complete"] for process in processes))
    bench.figure(bench.label, f"records {[process['records'] for process in processes]}")


def check_rate(bench, threads):
    """A million launches as fast as they go, with all kinds: nothing is lost."""
    tracer, workload = trace(bench, "workload", modes=ACTIVITY)
    workload.run("launch 0 1; launch 1 1; launch 2 1; synchronize")
    began = time.monotonic()
    workload.run(f"launchstorm {threads} {MANY // threads}")
    seconds = time.monotonic() - began
    workload.run("synchronize")
    after = workload.launches()
    workload.end(bench)
    _, report = tracer.finish()
    bench.all_equal(compare_activity(report, after))
    records = report["activity"]["records"]
    bench.figure(
        bench.label,
        f"{records} records in {seconds:.2f} s of launching by {threads} threads:"
        f" {records / seconds / 1e6:.2f} million/s",
    )
