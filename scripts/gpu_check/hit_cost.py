"""What a hit of gpuprobe's BPF programs costs on a GPU, by the kernel's statistics, whose own clock reads are
part of it. scripts/bench/hits.py has the same of the stand-in."""

import statistics
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from bench import ALL_MODES
from children import Failed
from cost import QUERIES_FOR, TimedScript
from expect import losses

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("bench", "soak")]
from bpf_objects import name_of_program  # noqa: E402
from hits import SWITCH, shown, times_in_bpf  # noqa: E402

WINDOWS = 7
# No traced run begins after so long.
MOST_SECONDS = 75
CALLS = 200
TRAINING_STEPS = 20
# The steps of torch_cost.py. In one run they take turns, so that a tensor given is taken back.
STEPS = {
    "train": ("a training step", TRAINING_STEPS),
    "give": ("a tensor given", CALLS),
    "take": ("a tensor taken back", CALLS),
    "malloc": ("cudaMalloc", CALLS),
    "free": ("cudaFree", CALLS),
    "launch": ("a launch", CALLS),
    "copy": ("a copy", CALLS),
    # Of jax_program.py.
    "jit": ("a call of JAX", CALLS),
}
RUNS = (
    (("--memleak",), "train give take malloc free"),
    (("--memleak", "--stacks", "off"), "train give take malloc free"),
    (("--cudatrace",), "train launch"),
    (("--bandwidth-util",), "train copy"),
    (ALL_MODES, "train"),
    (("--memleak", "--tensors", "off"), "train"),
    (("--memleak", "--python", "off"), "train give take"),
)
# What fires less often is not of the calls.
FEWEST_HITS = 0.05


@contextmanager
def statistics_of_bpf():
    before = SWITCH.read_text()
    SWITCH.write_text("1")
    try:
        yield
    finally:
        SWITCH.write_text(before)


def times_by_name(pid):
    """Nanoseconds, and runs, of the BPF programs that the process has loaded."""
    ns, runs = Counter(), Counter()
    for number, (some_ns, some_runs) in times_in_bpf(pid).items():
        name = name_of_program(number)
        ns[name] += some_ns
        runs[name] += some_runs
    return ns, runs


def rows(what, modes, windows, calls):
    """Lines of the table, one for each program that fired in the windows: [({name: ns}, {name: runs})].

    >>> windows = [({"a": 900 * n, "b": 5}, {"a": 6, "b": 0}) for n in (1, 2, 3)]
    >>> list(rows("a launch", ("--cudatrace",), windows, 6))
    ['| a launch | --cudatrace | a | 1.0 | 300 (225 to 375) | 0.3 |']
    >>> list(rows("a launch", ("--memleak",), [({}, {})], 6))
    ['| a launch | --memleak | none | 0 | | |']
    """
    hits = {name: statistics.median(runs[name] for _, runs in windows) / calls for name in windows[0][1]}
    some = [name for name, count in hits.items() if count >= FEWEST_HITS]
    for name in some:
        each = [ns[name] / max(runs[name], 1) for ns, runs in windows]
        whole = hits[name] * statistics.median(each) / 1000
        yield f"| {what} | {' '.join(modes)} | {name} | {hits[name]:.1f} | {shown(each)} | {whole:.1f} |"
    if not some:
        yield f"| {what} | {' '.join(modes)} | none | 0 | | |"


def measure_run(bench, program, modes, names):
    """Prints the rows of one run of gpuprobe."""
    windows = {name: [] for name in names}
    with bench.trace("--pid", str(program.pid), modes=modes, interval="1h") as tracer:
        tracer.wait_tracing()
        time.sleep(QUERIES_FOR)
        # Call paths are not known in the first one.
        for number in range(WINDOWS + 1):
            for name in names:
                ns, runs = times_by_name(tracer.pid)
                program.set(f"{name}={STEPS[name][1]}")
                later_ns, later_runs = times_by_name(tracer.pid)
                for counts, before in ((later_ns, ns), (later_runs, runs)):
                    counts.subtract(before)
                if number:
                    windows[name].append((later_ns, later_runs))
        report = tracer.finish()[1]
    for name in names:
        print(*rows(STEPS[name][0], modes, windows[name], STEPS[name][1]), sep="\n", flush=True)
    bench.equal(f"lost, {' '.join(modes)}", {}, losses(report))


def measure_hits(bench):
    """Each run of gpuprobe is a measurement of its own."""
    if bench.is_missing("torch"):
        return
    end = time.monotonic() + MOST_SECONDS
    program = None
    print("| what | traced by | program | hits | ns a hit, median (quartiles) | us in all |")
    print("|---|---|---|---|---|---|", flush=True)
    with statistics_of_bpf():
        for modes, names in RUNS:
            if time.monotonic() > end:
                bench.figure(f"hits, {' '.join(modes)}", f"{MOST_SECONDS} s are over: NOT MEASURED")
                continue
            try:
                program = program or TimedScript(bench, "train=20")
                measure_run(bench, program, modes, names.split())
            except Failed as reason:
                bench.fail(f"{' '.join(modes)}: {reason}")
                program = None
        if program:
            program.end()
        if not bench.is_missing("jax"):
            program = TimedScript(bench, "init", "jax_program.py")
            measure_run(bench, program, ("--memleak",), ["jit"])
            program.end()
