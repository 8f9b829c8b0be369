"""Checks on the launches of frameworks: PyTorch, Triton, JAX, CuPy; and on the memory of the last two.

Each script says how often it launched what it knows by name. Of all the rest
CUPTI knows the names and counts: through a collector in programs that start
under gpuprobe, and through PyTorch's profiler in one that runs already.
"""

import ctypes
import json
from collections import Counter

from children import SLOW_SECONDS
from expect import differ
from expect_kinds import kind_bytes, process_of
from expect_launches import compare_cupti, compare_launch_sums, launches_by_name, not_multiples
from pytorch import show_kinds

TRACE = ("--cudatrace",)
# Kinds of memory of a framework's pool below its own allocator.
POOLED = ("device", "vmm", "async")

def run_started(bench, *command):
    """Runs the command under gpuprobe, with the CUPTI collector if there is one;
    (line after the last step, final report)."""
    cupti = bench.cupti()
    base, output = cupti or (None, None)
    if cupti:
        for path in cupti_files(output):
            path.unlink()  # of an earlier run into this directory
    tracer = bench.trace("--", *command, modes=TRACE, env=bench.environment(base))
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    _, report = tracer.finish()
    bench.all_equal(compare_launch_sums(report))
    if cupti:
        files = cupti_files(output)
        bench.equal("CUPTI records were collected", True, bool(files))
        outputs = {int(path.suffix[1:]): json.loads(path.read_text()) for path in files}
        bench.all_equal(compare_cupti(report, outputs))
    else:
        bench.figure(bench.label, "no CUPTI to compare all kernels with: NOT CHECKED")
    trace = report["cudatrace"]
    bench.figure(
        bench.label,
        f"{trace['launches']} launches of {len(trace['kernels'])} kernels,"
        f" {trace['graph_launches']} graph launches, {trace['captured_launches']} captured",
    )
    return tracer.truths()[-1], report


def cupti_files(output):
    """The collector's output files, one a process; the PID is the suffix."""
    return list(output.parent.glob(output.name + ".*"))


def run_late(bench, script, before, after):
    """Attaches between the steps `before` and `after`; (line before, line of the
    last step, final report)."""
    target = bench.start(
        *bench.script(script, *before, "wait", *after, "wait"), env=bench.environment()
    )
    first = target.truth("wait", seconds=SLOW_SECONDS)
    tracer = bench.trace("--pid", str(target.pid), modes=TRACE)
    tracer.wait_tracing()
    target.go()
    target.truth("wait", 2, seconds=SLOW_SECONDS)
    _, report = tracer.finish()
    bench.all_equal(compare_launch_sums(report))
    target.go()
    bench.equal("exit status of the program", 0, target.wait())
    return first, target.truths()[-2], report


def demangle(name):
    """Demangles as CUPTI's users do, so that the texts can be compared.

    >>> demangle("_ZN4work4tickEPj"), demangle("triton_poi_fused"), demangle("_Znonsense")
    ('work::tick(unsigned int*)', 'triton_poi_fused', '_Znonsense')
    """
    library, libc = ctypes.CDLL("libstdc++.so.6"), ctypes.CDLL(None)
    status = ctypes.c_int()
    function = getattr(library, "__cxa_demangle")
    function.restype = ctypes.c_void_p
    text = function(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    shown = ctypes.string_at(text).decode(errors="replace")
    libc.free(ctypes.c_void_p(text))
    return shown


def demangled(counts):
    """The same counts, by demangled name."""
    shown = Counter()
    for name, launches in counts.items():
        shown[demangle(name)] += launches
    return shown


# ---- PyTorch, torch.compile, Triton ------------------------------------------


def check_torch_train_started(bench):
    if bench.is_missing("torch", "triton"):
        return
    steps = ("init", "train=10", "compiled=20", "triton=100", "graph=23")
    truth, report = run_started(bench, *bench.script("torch_train.py", *steps))
    trace = report["cudatrace"]
    rows = {row["name"]: row for row in trace["kernels"]}
    axpy = rows.get("gpuprobe_axpy", {"launches": 0, "captured_launches": 0})
    bench.equal("launches of the Triton kernel", truth["did"]["triton"], axpy["launches"])
    bench.equal("captured", truth["did"]["triton_captured"], axpy["captured_launches"])
    bench.equal("graph_launches", truth["did"]["graph"], trace["graph_launches"])
    fused = fused_kernels(launches_by_name(report))
    bench.equal("kernels of torch.compile", True, bool(fused))
    # The first call may try several launch configurations.
    calls = truth["did"]["compiled"]
    bench.equal(f"fewer than {calls}", {}, {n: c for n, c in fused.items() if c < calls})


def fused_kernels(counts):
    """Kernels fused by torch.compile, by their names."""
    return {name: count for name, count in counts.items() if name.startswith("triton_")}


def check_torch_train_late(bench):
    """Everything in the traced part runs under the profiler too."""
    if bench.is_missing("torch", "triton"):
        return
    warm = ("init", "train=3", "compiled=3", "triton=3", "profiled=1")
    _, said, report = run_late(bench, "torch_train.py", warm, ("profiled=20",))
    counts = launches_by_name(report)
    seen = demangled(said["kernels"])
    got = demangled(counts)
    bench.all_equal([differ("kernels that the profiler saw", seen.items(), got.items())])
    bench.equal("launches", sum(seen.values()), report["cudatrace"]["launches"])
    bench.equal("launches of the Triton kernel", 20, counts.get("gpuprobe_axpy"))
    fused = fused_kernels(counts)
    bench.equal("kernels of torch.compile", True, bool(fused))
    bench.equal("launches of theirs that are no multiple of 20", {}, not_multiples(fused, 20))
    bench.figure(
        bench.label,
        f"{sum(got.values())} launches of {len(got)} kernels; the profiler's"
        f" {sum(seen.values())} of {len(seen)}; calls {report['cudatrace']['calls']}",
    )


# ---- JAX ---------------------------------------------------------------------


def check_jax_started(bench):
    if not bench.is_missing("jax"):
        run_started(bench, *bench.script("jax_program.py", "init", "jit=20"))


def check_jax_late(bench):
    """A call launches the same kernels, or the same graphs, each time."""
    if bench.is_missing("jax"):
        return
    _, said, report = run_late(bench, "jax_program.py", ("init",), ("jit=20",))
    trace = report["cudatrace"]
    calls = said["did"]["jit"]
    counts = launches_by_name(report) | {"graphs": trace["graph_launches"]}
    bench.equal("something was launched", True, any(counts.values()))
    bench.equal(f"launches that are no multiple of {calls}", {}, not_multiples(counts, calls))
    names = sorted(name for name, count in counts.items() if count)
    bench.figure(bench.label, f"{calls} calls launched each {', '.join(names)}"[:300])


def check_jax_memory(bench):
    """Chunks of XLA's allocator add up to its own numbers, and are at the lines that made the arrays."""
    if bench.is_missing("jax"):
        return
    command = bench.script("jax_program.py", "init", "wait", "take", "wait", "drop", "wait")
    waits = bench.waits(command, env=bench.environment())
    for (after, report, _), arrays in zip(waits, (0, 63 << 20, 42 << 20)):
        stats = after["stats"]
        held = kind_bytes(report, after["pid"], *POOLED)
        pool = stats.get("pool_bytes")
        least = stats.get("bytes_in_use", 0) if pool is None else pool
        bench.equal(f"{held} B are at least the {least} B of its allocator", True, held >= least)
        process = next(one for one in report["memleak"]["processes"] if one["pid"] == after["pid"])
        own = [(stats.get("bytes_in_use"), stats.get("peak_bytes_in_use"))]
        chunks = process.get("xla", [])
        bench.equal(
            "chunks, and their peak", own, [(one["allocated_bytes"], one["peak_allocated_bytes"]) for one in chunks]
        )
        sites = [(site["live_bytes"], site["label"]) for one in chunks for site in one.get("sites", [])]
        made = sum(size for size, label in sites if "made" in label)
        bench.figure(bench.label, f"held {held}, its own: {stats}; {made} at made(), of {sites[:5]}")
        # A chunk that little would be left of is given away whole.
        bench.equal(f"{arrays} B of arrays and {made} at the line of made()", True, arrays <= made <= 1.1 * arrays)
    show_kinds(bench, report, after["pid"])


# ---- CuPy --------------------------------------------------------------------

CUPY_STEPS = ("raw=100", "elementwise=200", "mixed=50")


def compare_named(bench, expected, report):
    counts = launches_by_name(report)
    bench.equal("named kernels", expected, {name: counts.get(name, 0) for name in expected})


def check_cupy_started(bench):
    if bench.is_missing("cupy"):
        return
    truth, report = run_started(bench, *bench.script("cupy_program.py", "init", *CUPY_STEPS))
    compare_named(bench, truth["launches"], report)


def check_cupy_late(bench):
    if bench.is_missing("cupy"):
        return
    first, said, report = run_late(bench, "cupy_program.py", ("init",), CUPY_STEPS)
    new = {name: count - first["launches"][name] for name, count in said["launches"].items()}
    compare_named(bench, new, report)
    bench.equal("other kernels too", True, len(report["cudatrace"]["kernels"]) > len(new))


def check_cupy_memory(bench):
    if bench.is_missing("cupy"):
        return
    command = bench.script("cupy_program.py", "init", "wait", "take", "wait", "drop", "wait", "release", "wait")
    for after, report, _ in bench.waits(command, env=bench.environment()):
        got = kind_bytes(report, after["pid"], "device")
        bench.equal("device = total of the pool", after["total"], got)
        chunks = process_of(report, after["pid"]).get("cupy", [])
        bench.equal("chunks = used of the pool", after["used"], sum(one["allocated_bytes"] for one in chunks))
    show_kinds(bench, report, after["pid"])
