"""Writes an Nsight Systems export of many events, for timing reports of it.

    python3 scripts/bench/large_export.py EVENTS FILE

Four in ten events are allocations and frees of 3,000 call chains, the others are runs of 200 kernels. The tables are
those of tests/data/nsys-export-h200.sqlite.gz, with the rows of the process in it replaced.
"""

import gzip
import pathlib
import random
import shutil
import sqlite3
import sys

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
PROCESS = 281491737149440
STRINGS = 10_000_000
MODULE = STRINGS + 9000
KERNELS = STRINGS + 5000
CHAINS = 100_000


def names(database):
    """Names of functions and kernels, and call chains of twelve frames."""
    rows = [(STRINGS + n, f"torch::module_{n % 97}::function_{n}(at::Tensor const&)") for n in range(2000)]
    rows += [(KERNELS + n, f"kernel_{n}") for n in range(200)]
    rows.append((MODULE, "/usr/lib/libtorch_cuda.so"))
    database.executemany("insert into StringIds values (?, ?)", rows)
    frames = []
    for chain in range(3000):
        for depth in range(12):
            inner = random.randrange(2000) if depth < 6 else chain % (7 * (13 - depth)) + depth * 100
            frames.append((CHAINS + chain, STRINGS + inner, MODULE, 0, 4096 + inner, depth))
    database.executemany("insert into CUDA_CALLCHAINS values (?, ?, ?, ?, ?, ?)", frames)


def memory(database, count):
    """Allocations and frees with their calls; returns the time of the last."""
    ids = dict(database.execute("select value, id from StringIds where value like 'cuda%'"))
    calls = {0: next(i for name, i in ids.items() if name.startswith("cudaMalloc"))}
    calls[1] = next((i for name, i in ids.items() if name.startswith("cudaFree")), calls[0])
    live, events, called, time = [], [], [], 0
    for number in range(count):
        time += random.randrange(2000, 6000)
        frees = int(bool(live) and random.random() < 0.499)
        if frees:
            place = random.randrange(len(live))
            live[place], live[-1] = live[-1], live[place]
            address, size = live.pop()
        else:
            address, size = (number + 1) << 21, random.randrange(1 << 10, 1 << 21)
            live.append((address, size))
        chain = None if frees else CHAINS + int(random.paretovariate(0.5)) % 3000
        events.append((time, PROCESS, 0, 1, address, 0, size, 2, frees, 1000 + number))
        called.append((time - 1000, time + 100, 0, PROCESS + 1000, 1000 + number, calls[frees], 0, chain))
    columns = "start, globalPid, deviceId, contextId, address, pc, bytes, memKind, memoryOperationType, correlationId"
    database.executemany(
        f"insert into CUDA_GPU_MEMORY_USAGE_EVENTS ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", events
    )
    database.executemany("insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, ?, ?, ?, ?, ?, ?)", called)
    return time


def kernels(database, count, end):
    """Runs of kernels up to the time `end`."""
    columns = [column[1] for column in database.execute("pragma table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]

    def row(number):
        start, kernel = number * end // count, min(199, int(random.paretovariate(0.6)))
        known = {"start": start, "end": start + 500 + 10 * kernel, "globalPid": PROCESS, "streamId": 13}
        known |= dict.fromkeys(["demangledName", "shortName", "mangledName"], KERNELS + kernel)
        known |= {"correlationId": 50_000_000 + number, "graphNodeId": None}
        return [known.get(column, 0) for column in columns]

    marks = ", ".join("?" * len(columns))
    database.executemany(f"insert into CUPTI_ACTIVITY_KIND_KERNEL values ({marks})", map(row, range(count)))


def main(events, output):
    with gzip.open(TESTS / "data/nsys-export-h200.sqlite.gz") as packed, open(output, "wb") as file:
        shutil.copyfileobj(packed, file)
    database = sqlite3.connect(output)
    database.execute("pragma journal_mode = off")
    database.execute("pragma synchronous = off")
    for table in ["CUDA_GPU_MEMORY_USAGE_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"]:
        database.execute(f"delete from {table}")
    random.seed(1)
    names(database)
    end = memory(database, events * 4 // 10)
    kernels(database, events * 6 // 10, end)
    database.commit()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
