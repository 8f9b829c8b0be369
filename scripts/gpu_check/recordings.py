"""Checks on recordings: they agree with the live report, and with Nsight Systems."""

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

from children import Failed

MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
# Nsight Systems' results for tests/gpu/allocations.cu on an H200.
REAL_EXPORT = "tests/data/nsys-export-h200.sqlite.gz"


def memory_events(path):
    """(operation, kind, bytes) of every memory event, in order."""
    query = f"""SELECT o.label, k.label, e.bytes FROM {MEMORY} e
        JOIN ENUM_CUDA_DEV_MEM_EVENT_OPER o ON o.id = e.memoryOperationType
        JOIN ENUM_CUDA_MEM_KIND k ON k.id = e.memKind ORDER BY e.start, e.rowid"""
    with sqlite3.connect(path) as db:
        return db.execute(query).fetchall()


def analysis(bench, path, name):
    command = [bench.gpuprobe, "report", str(path), "--analysis", name, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"gpuprobe report: {done.stderr.strip()}")
    return json.loads(done.stdout)


def check_same_as_nsys(bench, program):
    """The program of the real export, traced by gpuprobe, gives the same events and analyses."""
    export = bench.directory / "export.sqlite"
    packed = bench.sources.parent.parent / REAL_EXPORT
    with gzip.open(packed) as source, export.open("wb") as file:
        shutil.copyfileobj(source, file)
    recording = bench.directory / f"{program}.sqlite"
    tracer = bench.trace("--record", str(recording), "--", bench.program(program))
    bench.equal("exit status", 0, tracer.wait())
    tracer.finish()
    bench.equal("memory events", memory_events(export), memory_events(recording))
    for name in ("watermark", "leakage"):
        expected = analysis(bench, export, name)["totals"]["total"]
        bench.equal(name, expected, analysis(bench, recording, name)["totals"]["total"])


# The parts of memory reports that a live report and a recording share.
SAME = (
    "alloc_calls free_calls failed_calls unknown_frees null_frees live_bytes live_allocations "
    "host_bytes host_allocations peak_bytes kinds calls"
).split()


def check_recorded_and_live(bench, *command):
    """The analyses of a recording agree with the last live report."""
    recording = bench.directory / "recorded.sqlite"
    tracer = bench.trace("--record", str(recording), "--", *command)
    bench.equal("exit status", 0, tracer.wait())
    _, report = tracer.finish()
    memleak = report["memleak"]
    leaked = analysis(bench, recording, "leakage")
    live = {"bytes": memleak["live_bytes"], "allocations": memleak["live_allocations"]}
    bench.equal("never freed", live, leaked["totals"]["total"])
    for key in SAME:
        bench.equal(f"recorded {key}", memleak[key], leaked["memleak"][key])
    peak = analysis(bench, recording, "watermark")["totals"]["total"]["bytes"]
    bench.equal("peak", memleak["peak_bytes"], peak)
    replayed = subprocess.run(
        [bench.gpuprobe, "replay", str(recording), "--last", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    bench.equal("replayed report", report, json.loads(replayed.stdout or "null"))
    recording.unlink()


COMMANDS = "alloc 8388608 3; free 0; free 2; alloc 1125899906842624; race 4 1000 512; alloc 1048576 4; exit"


def check_recorded_program(bench, program):
    check_recorded_and_live(bench, bench.program(program), "-c", COMMANDS)


def check_recorded_pytorch(bench):
    check_recorded_and_live(bench, *bench.torch("first", "second", "drop"))


def check_samples(bench, program):
    """NVML's figure is at least the program's memory."""
    recording = bench.directory / "sampled.sqlite"
    command = [bench.gpuprobe, "record", "--smi-interval", "10ms", "-o", str(recording)]
    done = subprocess.run(
        [*command, "--", bench.program(program)], capture_output=True, check=False
    )
    bench.equal("exit status", 0, done.returncode)
    peak = analysis(bench, recording, "watermark")["totals"]["total"]["bytes"]
    with sqlite3.connect(recording) as db:
        samples, most = db.execute("SELECT count(*), max(usedBytes) FROM GPUPROBE_SMI").fetchone()
    bench.equal("samples were taken", True, samples > 10)
    bench.equal("most in use is at least the peak", True, most >= peak)
    picture = bench.directory / "sampled.png"
    plot = [bench.gpuprobe, "plot", str(recording), "-o", str(picture)]
    bench.equal("plot", 0, subprocess.run(plot, check=False).returncode)


def check_nsys_reads(bench, program):
    """A real nsys, if there is one, reads a recording."""
    recording = bench.directory / "for-nsys.sqlite"
    tracer = bench.trace("--record", str(recording), "--", bench.program(program))
    tracer.wait()
    tracer.finish()
    script = Path(__file__).parent.parent / "nsys_check.py"
    done = subprocess.run(
        [sys.executable, str(script), str(recording)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    if done.returncode == 77:
        bench.figure("nsys", "not installed: not checked")
        return
    for line in done.stdout.splitlines():
        if line.startswith("FAIL"):
            bench.fail(line)
    bench.equal("exit status of nsys_check.py", 0, done.returncode)
