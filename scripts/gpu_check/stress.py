"""Checks of the stress programs of scripts/stress, by their own totals."""

import json
import sys
from pathlib import Path

from children import SLOW_SECONDS, Failed
from expect_stress import compare_stress

FOLDER = Path(__file__).resolve().parent.parent / "stress"

# Each ends by its work, so that a framework's slow start does not shorten it.
STRESS = {
    "paced": ("--throughput", "500", "--free-ratio", "0.5", "--calls", "500"),
    "training": ("--epochs", "20", "--sleep-ms", "1", "--compute"),
    "multi_process": (
        *("--procs", "2", "--iterations", "30", "--max-mb", "16"),
        *("--leak-prob", "0.2", "--compute"),
    ),
    "multi_thread": ("--iterations", "100", "--memory-cap-mb", "256"),
    "anomaly": ("--iterations", "15", "--sleep-ms", "1"),
}


def check_stress(bench, backend, name):
    if bench.is_missing(backend):
        return
    command = [sys.executable, "-B", str(FOLDER / f"{name}.py"), *STRESS[name]]
    options = ("--backend", backend, "--duration", "0")
    tracer = bench.trace("--", *command, *options, env=bench.environment())
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    _, report = tracer.finish()
    lines = tracer.out.all()
    if not lines or not lines[-1].startswith('{"program"'):
        raise Failed(f"{name}.py ended without its line: {tracer.err.all()[-3:]}")
    said = json.loads(lines[-1])
    bench.equal("ended by", "done", said["ended_by"])
    bench.all_equal(compare_stress(report, said))
    bench.figure(
        bench.label,
        f"{said['calls']} calls, {said['calls_per_second']:.0f} a second,"
        f" {said['live_bytes']} bytes live; seen as {report['memleak']['calls']}",
    )
