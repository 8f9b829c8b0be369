#!/usr/bin/env python3
"""Checks that what reads Nsight Systems exports reads a recording, and finds the right numbers.

    scripts/nsys_check.py RECORDING [--nsys PATH]

Runs the reports of a real `nsys stats` on a copy of the recording and compares them with what the
tables say, then the memory queries of the classic scripts and what those assert of their result.
Needs no GPU. The exit status is 0 if everything agrees, 77 if there is no nsys, else 1.
"""

import argparse
import csv
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
# Reports by their names before and since 2023.
API_SUM = ("cuda_api_sum", "cudaapisum")
API_TRACE = ("cuda_api_trace", "cudaapitrace")
NEED_GPU_TIMES = (
    ("cuda_gpu_kern_sum", "gpukernsum"),
    ("cuda_gpu_mem_size_sum", "gpumemsizesum"),
    ("cuda_gpu_trace", "gputrace"),
)

# What the classic scripts ask: with a stack, by the driver itself, and neither.
MEMORY_QUERY = """
SELECT e.globalPid >> 24 & 16777215, e.address, e.start, e.bytes, k.name, o.name, e.name, {stack}
FROM CUDA_GPU_MEMORY_USAGE_EVENTS e
JOIN ENUM_CUDA_MEM_KIND k ON k.id = e.memKind
JOIN ENUM_CUDA_DEV_MEM_EVENT_OPER o ON o.id = e.memoryOperationType
{join} ORDER BY e.start, e.rowid
"""
MATCH = f"""r.correlationId = e.correlationId AND r.globalTid >> 24 = e.globalPid >> 24
AND e.start BETWEEN r.start AND r.end AND r.eventClass {{classes}}"""

failures = []


def check(what, found, expected):
    """Notes whether two values agree."""
    agrees = found == expected
    wanted = "" if agrees else f", not {expected}"
    print(f"{'ok  ' if agrees else 'FAIL'}  {what}: {found}{wanted}")
    if not agrees:
        failures.append(what)


def stats(nsys, file, names):
    """The rows of the first report of `names` that this nsys has; None if it left it out."""
    for name in names:
        command = [nsys, "stats", "-r", name, "-f", "csv", "--force-export=false", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        if "could not be found" in text:
            continue
        if "SKIPPED" in text:
            return None
        lines = done.stdout.splitlines()
        header = [i for i, line in enumerate(lines) if line.count(",") > 2 and "[" not in line]
        if not header:
            return []
        rows = csv.DictReader(io.StringIO("\n".join(lines[header[0] :])))
        return [row for row in rows if None not in row.values()]
    raise SystemExit(f"{nsys} has no report of {names}")


def check_stats(nsys, file, db):
    """The reports of nsys agree with the tables."""
    query = f"""SELECT s.value, count(*), sum(r.end - r.start) FROM {RUNTIME} r
        JOIN StringIds s ON s.id = r.nameId GROUP BY s.value"""
    expected = {name: (calls, total) for name, calls, total in db.execute(query)}
    rows = stats(nsys, file, API_SUM) or []
    found = {r["Name"]: (int(r["Num Calls"]), int(r["Total Time (ns)"])) for r in rows}
    check("calls and their time in cuda_api_sum", found, expected)
    trace = stats(nsys, file, API_TRACE) or []
    total = db.execute(f"SELECT count(*) FROM {RUNTIME}").fetchone()[0]
    check("rows of cuda_api_trace", len(trace), total)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    timed = tables & {f"CUPTI_ACTIVITY_KIND_{what}" for what in ("KERNEL", "MEMCPY", "MEMSET")}
    has_times = any(db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in timed)
    for names in NEED_GPU_TIMES:
        rows = stats(nsys, file, names)
        check(f"{names[0]} has rows only where the GPU was timed", bool(rows), has_times)


def memory_events(db):
    """Events by what the classic scripts make of them."""
    name = "(SELECT value FROM StringIds WHERE id = r.nameId)"
    stack = """(SELECT group_concat('[' || s.value || '] (' || m.value || ')', ' -> ')
        FROM CUDA_CALLCHAINS c JOIN StringIds s ON s.id = c.symbol
        JOIN StringIds m ON m.id = c.module WHERE c.id = r.callchainId)"""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    if "CUDA_GPU_MEMORY_USAGE_EVENTS" not in tables:
        return {"valid": [], "driver": [], "invalid": []}
    join = f"JOIN {RUNTIME} r ON {MATCH}"
    nowhere = f"WHERE NOT EXISTS (SELECT 1 FROM {RUNTIME} r WHERE {MATCH})"
    valid_stack = stack if "CUDA_CALLCHAINS" in tables else "''"
    queries = {
        "valid": (valid_stack, join.format(classes="= 67")),
        "driver": (name, join.format(classes="= 1")),
        "invalid": ("'STACK_NOT_FOUND'", nowhere.format(classes="IN (1, 67)")),
    }
    db.execute(f"CREATE INDEX GPUPROBE_BY_CALL ON {RUNTIME} (correlationId)")
    made = {kind: MEMORY_QUERY.format(stack=s, join=j) for kind, (s, j) in queries.items()}
    return {kind: db.execute(query).fetchall() for kind, query in made.items()}


def check_memory(db):
    """What the classic scripts assert holds."""
    events = memory_events(db)
    total = 0
    if any(events.values()):
        total = db.execute("SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS").fetchone()[0]
    check("events in exactly one of the three lists", sum(map(len, events.values())), total)
    live, wrong = {}, 0
    for row in sorted((row for rows in events.values() for row in rows), key=lambda row: row[2]):
        pid, address, _, size, kind, operation, _, stack = row
        wrong += not stack or "\t" in stack or "\n" in stack
        if operation.endswith("DEALLOCATION"):
            wrong += live.pop((pid, address, kind), None) != size
        else:
            wrong += (pid, address, kind) in live
            live[pid, address, kind] = size
    check("events that break what the classic scripts assert", wrong, 0)


def main():
    """Checks one recording."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recording")
    parser.add_argument("--nsys", default=shutil.which("nsys"))
    arguments = parser.parse_args()
    if not arguments.nsys:
        print("there is no nsys here: nothing was checked")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "copy.sqlite")
        shutil.copy(arguments.recording, file)
        db = sqlite3.connect(file)
        check_stats(arguments.nsys, file, db)
        check_memory(db)
        db.close()
    print(f"{len(failures)} of the checks failed" if failures else "all agree")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
