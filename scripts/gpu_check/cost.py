"""Benchmarks: the cost of calls untraced, traced, under CUPTI and under other tools, beside goals.

They are printed, not judged; that no call was missed is judged.
"""

import glob
import json
import os
import shutil
import statistics
import subprocess
from pathlib import Path

from bench import ALL_MODES
from children import Failed
from expect import losses
from workload import numbers_of, start

ROUNDS = 5
# Differences of a few percent, below the noise, are measured longer.
MORE_ROUNDS = 11
TENSOR_ROUNDS = 7
TOOL_ROUNDS = 3
TOOL_SECONDS = 60
LAUNCHES = 100_000
TRAINING_STEPS = 100
BLOCK_BYTES = 64 * 1024

# The traced modes; gpuprobe attaches to the waiting program and detaches again.
LAUNCH_MODES = {"untraced": None, "--cudatrace": ("--cudatrace",), "all three": ALL_MODES}
MEMORY_MODES = {"untraced": None, "--memleak": ("--memleak",)}
STEP_MODES = MEMORY_MODES | {"all three": ALL_MODES}
# Cost of a cached tensor, by gpuprobe's options.
TENSOR_MODES = {
    "untraced": None,
    "without tensors": ("--memleak", "--tensors", "off", "--stacks", "off"),
    "sums only": ("--memleak", "--stacks", "off"),
    "native stacks": ("--memleak", "--python", "off"),
    "Python stacks": ("--memleak",),
    "and what was asked for": ("--memleak", "--tensors", "requested"),
}
STACK_MODES = {
    "untraced": None,
    "without stacks": ("--memleak", "--stacks", "off"),
    "fp": ("--memleak", "--stacks", "fp"),
    "auto": ("--memleak", "--stacks", "auto"),
    "auto, without Python": ("--memleak", "--stacks", "auto", "--python", "off"),
    "dwarf": ("--memleak", "--stacks", "dwarf"),
}
# No-op programs on the functions that all three probe: the minimum cost of any tracer of these
# functions.
EMPTY_PROGRAMS = "empty programs"


class Earlier(tuple):
    """Modes of an earlier gpuprobe, $GPU_CHECK_BEFORE."""


def with_others(bench, modes):
    """The modes, and what they are compared with: empty programs, an earlier gpuprobe."""
    others = {EMPTY_PROGRAMS: EMPTY_PROGRAMS} if bench.floor else {}
    if bench.before:
        others |= {f"before: {name}": Earlier(some) for name, some in modes.items() if some}
    return modes | others


class Timed:
    """A program that does one timed step each time. A first one, untimed by us, warms it up."""

    def run(self, modes=None):
        """(figures of the timed step, final report if it was traced)."""
        if modes == EMPTY_PROGRAMS:
            floor = self.bench.hold_floor(self.pid)
            figures = self.step()
            floor.release()
            return figures, None
        tracer = None
        if modes:
            program = self.bench.before if isinstance(modes, Earlier) else None
            tracer = self.bench.trace("--pid", str(self.pid), modes=modes, program=program)
            tracer.wait_tracing()
            tracer.fresh_report()
            tracer.fresh_report()
        figures = self.step()
        return figures, tracer.finish()[1] if tracer else None


class TimedScript(Timed):
    """A program of tests/gpu; its figures are in the line of the step."""

    def __init__(self, bench, command, step, runs, env):
        self.bench = bench
        self.name = step.partition("=")[0]
        self.process = bench.start(*command, "init", step, *("wait", step) * runs, "wait", env=env)
        self.pid, self.waits = self.process.pid, 1
        self.process.truth("wait", 1)

    def step(self):
        self.process.go()
        self.waits += 1
        self.process.truth("wait", self.waits)
        return self.process.truth(self.name, self.waits)

    def end(self):
        self.process.go()
        self.bench.equal("exit status of the program", 0, self.process.wait())


class TimedWorkload(Timed):
    """A command of the workload's that says its time: `ns` of each call are the figures."""

    def __init__(self, bench, build, prepare, command, env):
        self.bench, self.command = bench, command
        self.workload = start(bench, build, env=env)
        self.workload.run(prepare)
        self.step()
        self.pid = self.workload.pid

    def step(self):
        return {"ns": ns_each(self.workload.run(self.command))}

    def end(self):
        self.workload.end(self.bench)


def ns_each(reply):
    """Nanoseconds of one call; None if the text has no such reply.

    >>> ns_each("ok pairs=4 ns=100"), ns_each("ok launches=2 ns=100"), ns_each("ready 7")
    (25.0, 50.0, None)
    """
    said = numbers_of(reply)
    calls = [said[name] for name in ("pairs", "launches", "graph_launches") if said.get(name)]
    return said["ns"] / calls[0] if "ns" in said and calls else None


def ratios(values):
    """One variant a text: its median and spread, and the median of its ratios to the first, round
    by round: what slows a machine down for a while slows all variants down.

    >>> ratios({"untraced": [4.0, 4.2, 4.1], "traced": [8.2, 8.0, 8.4]})
    ['untraced 4.100 (4.000 to 4.200)', 'traced 8.200 (8.000 to 8.400) ratio 2.049']
    """
    first = next(iter(values.values()))
    shown = []
    for variant, measured in values.items():
        middle = statistics.median(measured)
        text = f"{variant} {middle:.3f} ({min(measured):.3f} to {max(measured):.3f})"
        ratio = statistics.median(m / f for m, f in zip(measured, first))
        shown.append(text + (f" ratio {ratio:.3f}" if shown else ""))
    return shown


def in_turn(bench, program, modes, check=None, rounds=ROUNDS, beside=None):
    """{variant: figures} of the timed steps, all variants once in each round. `program(env, runs)`
    starts one for so many; `check` gets each report and its modes; `beside` has further environments, by name."""
    plain = program(bench.environment(), rounds * len(modes))
    others = {name: program(env, rounds) for name, env in (beside or {}).items()}
    figures = {}
    for _ in range(rounds):
        for variant, wanted in modes.items():
            figure, report = plain.run(wanted)
            figures.setdefault(variant, []).append(figure)
            if report and check:
                check(report, wanted)
            elif report:
                bench.equal(f"lost, {variant}", {}, losses(report))
        for name, other in others.items():
            figures.setdefault(name, []).append(other.run()[0])
    for one in (plain, *others.values()):
        one.end()
    return figures


def under_cupti(bench):
    """The environment of a program under the minimal collector."""
    cupti = bench.cupti()
    if not cupti:
        bench.figure(bench.label, "no CUPTI to compare with: NOT MEASURED")
    return {"CUPTI kernel records": bench.environment(cupti[0])} if cupti else {}


def show(bench, name, unit, figures, value, scale=1):
    scaled = {variant: [scale * figure[value] for figure in some] for variant, some in figures.items()}
    rounds = len(next(iter(scaled.values())))
    bench.figure(f"{name}, {unit}, medians (and spread) of {rounds} taken in turn", "; ".join(ratios(scaled)))


# ---- calls of the workload ------------------------------------------------------

# By what is shown: the build, what it does first, the timed command, the modes, the rounds, and what
# the report of a timed run has.
GRAPH = "gcapture; galloc {{graph}} {0}; gfree {{graph}} {{node}}; gendcapture {{graph}}".format(BLOCK_BYTES)
CALLS = {
    f"a launch of {LAUNCHES} of an empty kernel": (
        *("workload", "synchronize", f"timelaunch {LAUNCHES}", LAUNCH_MODES, MORE_ROUNDS),
        ("cudatrace", "launches", LAUNCHES),
    ),
    "a cudaMallocAsync + cudaFreeAsync pair": (
        *("workload", "synchronize", f"timepairs 20000 {BLOCK_BYTES} async", MEMORY_MODES, MORE_ROUNDS),
        ("memleak", "free_calls", 20_000),
    ),
    # Of a graph that allocates and frees: nothing of it is live after a launch.
    "a cuGraphLaunch with memory nodes": (
        *("workload_static", GRAPH, "glaunch {graph} 20000", MEMORY_MODES, ROUNDS),
        ("memleak", "live_bytes", 0),
    ),
    "a cudaMalloc + cudaFree pair": (
        *("workload", "synchronize", "timepairs 5000 2048", MEMORY_MODES, ROUNDS),
        ("memleak", "free_calls", 5000),
    ),
    "a cudaMalloc + cudaFree pair, static": (
        *("workload_static", "synchronize", "timepairs 5000 2048", MEMORY_MODES, ROUNDS),
        ("memleak", "free_calls", 5000),
    ),
}


def measure_call(bench, name):
    build, prepare, command, modes, rounds, (part, key, expected) = CALLS[name]

    def check(report, _):
        bench.equal(f"{part} {key}", expected, report[part][key])
        bench.equal("lost", {}, losses(report))

    def program(env, _):
        return TimedWorkload(bench, build, prepare, command, env)

    figures = in_turn(bench, program, with_others(bench, modes), check, rounds, under_cupti(bench))
    show(bench, name, "us", figures, "ns", scale=1e-3)


# ---- steps of PyTorch -----------------------------------------------------------


def measure_tensors(bench, step, name, unit, modes, rounds):
    """A timed step of torch_tensors.py: `large` is one of a model that keeps the GPU busy, so that the
    CPU time of the program's threads is hidden meanwhile."""
    if bench.is_missing("torch"):
        return
    key = step.partition("=")[0]
    beside = {}
    if key == "segments":
        histories = ("python", "all")
        beside = {f"PyTorch's history, {one}": os.environ | {"TORCH_HISTORY": one} for one in histories}

    def check(report, wanted):
        if "dwarf" not in wanted:
            bench.equal("lost", {}, losses(report))

    def program(env, runs):
        return TimedScript(bench, bench.torch(), step, runs, env)

    figures = in_turn(bench, program, modes, check, rounds, beside)
    figures = {variant: [one[key] for one in some] for variant, some in figures.items()}
    show(bench, name, unit, figures, unit)


def measure_training_step(bench):
    """A step launches several hundred kernels; its allocations come from a cache."""
    if bench.is_missing("torch", "triton"):
        return
    launches = []

    def check(report, modes):
        bench.equal("lost", {}, losses(report))
        if "--cudatrace" in modes:
            launches.append(report["cudatrace"]["launches"] / TRAINING_STEPS)

    modes = dict(STEP_MODES)
    if bench.floor:
        modes[EMPTY_PROGRAMS] = EMPTY_PROGRAMS
    else:
        bench.figure("empty programs in a training step", "no GPU_CHECK_FLOOR: NOT MEASURED")

    def program(env, runs):
        step = f"train={TRAINING_STEPS}"
        return TimedScript(bench, bench.script("torch_train.py"), step, runs, env)

    figures = in_turn(bench, program, modes, check, MORE_ROUNDS, under_cupti(bench))
    name = f"a PyTorch training step of {launches[0]:.0f} launches"
    show(bench, f"{name}, the median of a run", "ms", figures, "ms_per_step")
    show(bench, f"{name}, the quickest of a run", "ms", figures, "ms_quickest_step")
    bench.equal("launches of a step, in each round", launches[:1] * len(launches), launches)


# ---- other tools, which have to start the program themselves ---------------------

TOOLKITS = ("/usr/local/cuda*", "/opt/nvidia/*")


def find(name, *places):
    """The program of this name, on the PATH or in a folder of the toolkit."""
    found = shutil.which(name)
    for place in places:
        for toolkit in TOOLKITS:
            found = found or next(iter(sorted(glob.glob(f"{toolkit}/{place}"))), None)
    return found


def nsys(bench, name):
    """{nsys: (the command that the program's own comes after, environment)}, if it is installed."""
    found = find("nsys", "bin/nsys", "host/target-linux-x64/nsys", "*/host/target-linux-x64/nsys")
    profile = ["profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"]
    return {"nsys": ([found, *profile, "-o", str(bench.directory / name)], {})} if found else {}


def tools(bench, *options):
    out = str(bench.directory / "peer.txt")
    found = {"untraced": ([], {}), "gpuprobe": ([bench.gpuprobe, *options, "--output", out, "--"], {})}
    found |= nsys(bench, "peer")
    sanitizer = find("compute-sanitizer", "bin/compute-sanitizer")
    return found | ({"compute-sanitizer": ([sanitizer], {})} if sanitizer else {})


def ns_of_last(text):
    """Of the last reply of the workload's that has a time."""
    found = [ns for ns in map(ns_each, text.splitlines()) if ns is not None]
    return found[-1] if found else None


def value_of(step, key):
    """Finds a figure of the last line of that step."""

    def find_in(text):
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        steps = [line[key] for line in lines if line.get("step") == step]
        return steps[-1] if steps else None

    return find_in


def timed(command, env, value):
    """The figure that `value` finds in the output, and why there is none."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=TOOL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"it took more than {TOOL_SECONDS} s"
    figure = value(done.stdout)
    if figure is not None:
        return figure, None
    return None, (done.stderr or done.stdout or "it said nothing").strip().splitlines()[-1]


def compare_tools(bench, what, command, value, found):
    """`found` is {tool: (command prefix, environment)}; each run is a new process."""
    values, missing = {}, {}
    for _ in range(TOOL_ROUNDS):
        for tool, (prefix, extra) in found.items():
            if tool in missing:
                continue
            number, why = timed([*prefix, *command], bench.environment(os.environ | extra), value)
            if why:
                missing[tool] = why
            else:
                values.setdefault(tool, []).append(number)
    for tool, why in missing.items():
        bench.figure(f"{what}, {tool}", f"NOT MEASURED: {why}")
    if "untraced" not in values:
        raise Failed("the untraced program gave no figure")
    bench.figure(f"{what}, medians (and spread) of {TOOL_ROUNDS}", "; ".join(ratios(values)))


def training_command(bench):
    return bench.script("torch_train.py", "init", "train=5", f"train={TRAINING_STEPS}")


def measure_tools(bench):
    for what, commands, mode in (
        ("a cudaMalloc + cudaFree pair", "timepairs 200 65536; timepairs 5000 65536", "--memleak"),
        ("a launch", f"timelaunch {LAUNCHES}", "--cudatrace"),
    ):
        program = [bench.program("workload"), "-c", f"{commands}; exit"]
        compare_tools(bench, f"{what}, ns, by tool", program, ns_of_last, tools(bench, mode))
    if not bench.is_missing("torch", "triton"):
        step = value_of("train", "ms_per_step")
        what = "a PyTorch training step, ms, by tool"
        compare_tools(bench, what, training_command(bench), step, tools(bench, "--memleak"))


# The kinds of the minimal sample, for a comparison: as many kinds.
KINDS = {
    "kernels": ("concurrent_kernel", "10"),
    "kernels and calls": ("concurrent_kernel,driver,runtime", "10,4,5"),
    "all kinds": (None, "8,9,4,5,1,22,2,10,49,50,38,17,11,12,37,39"),
}


def collectors(bench):
    out = str(bench.directory / "activity-cost.txt")
    found = {"untraced": ([], {})}
    for name, (ours, theirs) in KINDS.items():
        option = f"--activity={ours}" if ours else "--activity"
        found[f"gpuprobe, {name}"] = ([bench.gpuprobe, option, "--output", out, "--"], {})
        if cupti := bench.cupti():
            found[f"minimal, {name}"] = ([], cupti[0] | {"CUPTI_MINIMAL_KINDS": theirs})
    return found | nsys(bench, "activity-cost-nsys")


def measure_activity(bench):
    command = [bench.program("workload"), "-c", f"timelaunch 1000; timelaunch {LAUNCHES}; exit"]
    compare_tools(bench, "a launch, ns, by collector", command, ns_of_last, collectors(bench))
    if not bench.is_missing("torch", "triton"):
        what, value = "a training step, ms, by collector", value_of("train", "ms_per_step")
        compare_tools(bench, what, training_command(bench), value, collectors(bench))


# ---- gpuprobe itself --------------------------------------------------------------


def resident_text(pid):
    """Resident memory: the program, its libraries, and pages of the ring buffers."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", maxsplit=1) for line in status)
    mib = {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")}
    return (
        f"{mib['VmRSS']:.1f} MiB, {mib['RssAnon']:.1f} of it anonymous, the rest mapped"
        " (goal: under 20 MB)"
    )


def measure_start_and_idle(bench):
    target = start(bench, "workload")
    target.run("synchronize")
    for name, arguments in (("--pid", ("--pid", str(target.pid))), ("whole host", ())):
        seconds = []
        for _ in range(5):
            tracer = bench.trace(*arguments)
            seconds.append(tracer.wait_tracing())
            tracer.fresh_report()
            resident = resident_text(tracer.pid)
            tracer.finish()
        shown = ", ".join(f"{1000 * s:.0f}" for s in sorted(seconds))
        bench.figure(
            f"start to attached, {name}",
            f"median {1000 * statistics.median(seconds):.0f} ms of {shown} (goal: under 200)",
        )
        bench.figure(f"resident when idle, {name}", resident)
    target.end(bench)
