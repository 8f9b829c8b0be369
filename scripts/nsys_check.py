#!/usr/bin/env python3
"""Checks that readers of Nsight Systems exports read a recording and find the right numbers.

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
# Report names before and since 2023.
API_SUM = ("cuda_api_sum", "cudaapisum")
API_TRACE = ("cuda_api_trace", "cudaapitrace")
KERNEL_SUM = ("cuda_gpu_kern_sum", "gpukernsum")
MEMORY_SIZE_SUM = ("cuda_gpu_mem_size_sum", "gpumemsizesum")
MEMORY_TIME_SUM = ("cuda_gpu_mem_time_sum", "gpumemtimesum")
GPU_TRACE = ("cuda_gpu_trace", "gputrace")
EXECUTION_SUM = ("cuda_kern_exec_sum", "kernexecsum")
KERNEL, MEMCPY, MEMSET = (f"CUPTI_ACTIVITY_KIND_{k}" for k in ("KERNEL", "MEMCPY", "MEMSET"))

# The classic scripts' classes: with a stack, by the driver itself, and neither.
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
    """Records whether two values agree."""
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
    # nsys strips the version of a runtime function only if it has fewer than four digits.
    query = f"""SELECT CASE WHEN s.value LIKE '%\\_v____' ESCAPE '\\'
            THEN substr(s.value, 1, length(s.value) - 6) ELSE s.value END AS name,
        count(*), sum(r.end - r.start) FROM {RUNTIME} r
        JOIN StringIds s ON s.id = r.nameId GROUP BY name"""
    expected = {name: (calls, total) for name, calls, total in db.execute(query)}
    rows = stats(nsys, file, API_SUM) or []
    found = {}
    for row in rows:
        # And has a row for each of the merged names.
        calls, total = found.get(row["Name"], (0, 0))
        found[row["Name"]] = (calls + int(row["Num Calls"]), total + int(row["Total Time (ns)"]))
    check("calls and their time in cuda_api_sum", found, expected)
    trace = stats(nsys, file, API_TRACE) or []
    total = db.execute(f"SELECT count(*) FROM {RUNTIME}").fetchone()[0]
    check("rows of cuda_api_trace", len(trace), total)


def rows_of(db, table, query):
    """The rows of a query of a table; none without the table."""
    found = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return db.execute(query).fetchall() if found else []


def number(text):
    """The number in a cell: whole, if it is."""
    value = float(text.replace(",", "") or 0)
    return int(value) if value == int(value) else value


def check_gpu_stats(nsys, file, db):
    """The reports of nsys about GPU times agree with the tables."""
    query = f"""SELECT s.value, count(*), sum(k."end" - k.start), min(k."end" - k.start),
        max(k."end" - k.start) FROM {KERNEL} k JOIN StringIds s ON s.id = k.demangledName
        GROUP BY s.value"""
    expected = {name: tuple(values) for name, *values in rows_of(db, KERNEL, query)}
    columns = ("Instances", "Total Time (ns)", "Min (ns)", "Max (ns)")
    rows = stats(nsys, file, KERNEL_SUM) or []
    found = {}
    for row in rows:
        # Some versions have a row for each grid.
        count, total, least, most = (number(row[c]) for c in columns)
        before = found.get(row["Name"], (0, 0, least, most))
        found[row["Name"]] = (
            before[0] + count,
            before[1] + total,
            min(before[2], least),
            max(before[3], most),
        )
    check("kernels and their times in cuda_gpu_kern_sum", found, expected)
    query = f"""SELECT 'memcpy ' || e.label, count(*), sum(m.bytes), sum(m."end" - m.start) FROM {MEMCPY} m
        JOIN ENUM_CUDA_MEMCPY_OPER e ON e.id = m.copyKind GROUP BY 1"""
    moved = rows_of(db, MEMCPY, query)
    query = f"""SELECT 'memset', count(*), sum(bytes), sum("end" - start) FROM {MEMSET}"""
    moved += [row for row in rows_of(db, MEMSET, query) if row[1]]
    rows = stats(nsys, file, MEMORY_TIME_SUM) or []
    found = operations(rows, "Total Time (ns)")
    expected = {name: (count, total) for name, count, _, total in moved}
    check("copies and their times in cuda_gpu_mem_time_sum", found, expected)
    rows = stats(nsys, file, MEMORY_SIZE_SUM) or []
    # It has megabytes with three decimals.
    found = operations(rows, "Total (MB)")
    expected = {name: (count, round(size / 1e6, 3)) for name, count, size, _ in moved}
    check("copies and their sizes in cuda_gpu_mem_size_sum", found, expected)
    expected = []
    for table in (KERNEL, MEMCPY, MEMSET):
        query = f'SELECT start, "end" - start, streamId, correlationId FROM {table}'
        expected += rows_of(db, table, query)
    rows = stats(nsys, file, GPU_TRACE) or []
    columns = ("Start (ns)", "Duration (ns)", "Strm", "CorrId")
    found = [tuple(number(row[c]) for c in columns) for row in rows]
    check("rows of cuda_gpu_trace", len(found), len(expected))
    expected = [tuple(value or 0 for value in row) for row in expected]
    check("rows of cuda_gpu_trace that differ", len(set(found) ^ set(expected)), 0)
    query = f"""SELECT count(*) FROM {KERNEL} k JOIN {RUNTIME} r ON r.correlationId = k.correlationId
        AND r.globalTid >> 24 = k.globalPid >> 24"""
    expected = sum(row[0] for row in rows_of(db, KERNEL, query))
    rows = stats(nsys, file, EXECUTION_SUM) or []
    found = sum(number(row["Count"]) for row in rows)
    check("kernels with their calls in cuda_kern_exec_sum", found, expected)


def operations(rows, column):
    """Count and another column by operation, whose names differ between versions."""
    found = {}
    for row in rows:
        name = row["Operation"].strip("[]").replace("CUDA ", "")
        name = name.replace("HtoD", "Host-to-Device").replace("DtoH", "Device-to-Host")
        name = name.replace("DtoD", "Device-to-Device").replace("PtoP", "Peer-to-Peer")
        found[name] = (number(row["Count"]), number(row[column]))
    return found


def memory_events(db):
    """Events by the classes of the classic scripts."""
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
    """The assertions of the classic scripts hold."""
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
        check_gpu_stats(arguments.nsys, file, db)
        check_memory(db)
        db.close()
    print(f"{len(failures)} of the checks failed" if failures else "all agree")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
