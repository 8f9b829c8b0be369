"""Benchmarks: the cost of calls untraced, traced and under other tools, beside goals.

They are printed, not judged; that no call was missed is judged.
"""

import glob
import json
import os
import shutil
import statistics
import subprocess
import time
from functools import partial
from pathlib import Path

from bench import ALL_MODES
from children import SLOW_SECONDS, Failed, Floor
from expect import losses
from workload import numbers_of, start

ROUNDS = 5
# Differences of a few percent, below the noise, are measured longer.
MORE_ROUNDS = 11
STEP_ROUNDS = 15
TOOL_ROUNDS = 3
TOOL_SECONDS = 60
# No round begins after so long.
MOST_SECONDS = 150
# gpuprobe learns the devices of threads at first, from probes that are gone then.
QUERIES_FOR = 0.1
LAUNCHES = 100_000
BLOCK_BYTES = 64 * 1024
TRAINING_STEP = "train=60"


class Earlier(tuple):
    """Modes of an earlier gpuprobe, $GPU_CHECK_BEFORE."""


EMPTY_PROGRAMS = "empty programs"


class Empty(tuple):
    """Modes whose functions have empty programs: the minimum cost of any tracer of these."""


class Setting(str):
    """A step that the program itself does before the timed one, and afterwards with the number 0."""


# The traced modes; gpuprobe attaches to the waiting program and detaches again.
LAUNCH_MODES = {"untraced": None, "--cudatrace": ("--cudatrace",), "all three": ALL_MODES}
MEMORY_MODES = {"untraced": None, "--memleak": ("--memleak",)}
WITHOUT_STACKS = {"--memleak --stacks off": ("--memleak", "--stacks", "off")}
STEP_MODES = {
    "untraced": None,
    f"{EMPTY_PROGRAMS} of --memleak": Empty(("--memleak",)),
    **WITHOUT_STACKS,
    "--memleak": ("--memleak",),
    f"{EMPTY_PROGRAMS} of all three": Empty(ALL_MODES),
    "all three": ALL_MODES,
}
TENSOR_MODES = {
    "untraced": None,
    **WITHOUT_STACKS,
    "--memleak": ("--memleak",),
    "--memleak --tensors requested": ("--memleak", "--tensors", "requested"),
    "PyTorch's history of Python stacks": Setting("history=1"),
    "PyTorch's history of all stacks": Setting("history=2"),
}
CENSUS = ("--memleak", "--tensors", "census")
# Longer than several windows of a census.
SECONDS_OF_STEPS = "train=600"
# The timed steps of torch_cost.py: what each is, its unit, the modes, and the rounds.
STEPS = {
    TRAINING_STEP: ("a PyTorch training step", "ms", STEP_MODES, STEP_ROUNDS),
    "pairs=50000": ("a cached tensor given and taken back", "us", TENSOR_MODES, ROUNDS),
    SECONDS_OF_STEPS: ("a PyTorch training step", "ms", {"untraced": None, "census": CENSUS}, STEP_ROUNDS),
    "large=40": ("a training step that the GPU is busy with", "ms", MEMORY_MODES, ROUNDS),
}


def with_others(bench, modes):
    """The modes, and what they are compared with: empty programs, an earlier gpuprobe."""
    others = {EMPTY_PROGRAMS: Empty(ALL_MODES)} if bench.floor else {}
    if bench.before:
        others |= {f"before: {name}": Earlier(some) for name, some in modes.items() if some}
    return modes | others


class Timed:
    """A program that does one timed step each time. A first one, untimed by us, warms it up."""

    def run(self, modes=None):
        """(figures of the timed step, final report if it was traced)."""
        if not modes:
            return self.step(), None
        if isinstance(modes, Setting):
            self.set(modes)
            figures = self.step()
            self.set(modes.partition("=")[0] + "=0")
            return figures, None
        if isinstance(modes, Empty):
            with Floor(self.bench, self.pid, modes):
                return self.step(), None
        program = self.bench.before if isinstance(modes, Earlier) else None
        with self.bench.trace("--pid", str(self.pid), modes=modes, program=program, interval="1h") as tracer:
            tracer.wait_tracing()
            time.sleep(QUERIES_FOR)
            return self.step(), tracer.finish()[1]


class TimedScript(Timed):
    """A script; the figures of torch_cost.py are in the line of the step."""

    def __init__(self, bench, step, script="torch_cost.py"):
        self.bench, self.timed, self.waits = bench, step, 0
        self.process = bench.start(*bench.script(script, step, "wait"), env=bench.environment())
        self.pid = self.process.pid
        self.wait()

    def wait(self):
        self.waits += 1
        self.process.truth("wait", self.waits, SLOW_SECONDS)

    def set(self, step):
        self.process.write(f"{step} wait")
        self.wait()

    def step(self):
        self.set(self.timed)
        return self.process.truths()[-1]

    def end(self):
        self.process.go()
        self.bench.equal("exit status of the program", 0, self.process.wait())


class TimedWorkload(Timed):
    """A command of the workload's that says its time: `us` of each call are the figures."""

    def __init__(self, bench, build, prepare, command):
        self.bench, self.command = bench, command
        self.workload = start(bench, build)
        self.workload.run(prepare)
        self.step()
        self.pid = self.workload.pid

    def step(self):
        return {"us": us_each(self.workload.run(self.command))}

    def end(self):
        self.workload.end(self.bench)


def us_each(reply):
    """Microseconds of one call; None if the text has no such reply.

    >>> us_each("ok pairs=4 ns=100"), us_each("ok launches=2 ns=100"), us_each("ready 7")
    (0.025, 0.05, None)
    """
    said = numbers_of(reply)
    calls = [said[name] for name in ("pairs", "launches", "graph_launches") if said.get(name)]
    return said["ns"] / calls[0] / 1000 if "ns" in said and calls else None


def spread(values):
    """
    >>> spread([3, 1, 2, 4, 5]), spread([1])
    ('3.000 (2.000 to 4.000)', '1.000 (1.000 to 1.000)')
    """
    low, middle, high = statistics.quantiles(values if len(values) > 1 else 2 * values, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def ratios(values):
    """One variant a text: its median and quartiles; of what is added to the first, round by round, the
    median; so of its ratios to the first and to its empty programs: what slows a machine down for a while
    slows all variants down.

    >>> empty = {"untraced": [2.0, 4.0], "empty programs of --memleak": [3.0, 6.0]}
    >>> print(*ratios(empty | {"--memleak --stacks off": [4.0, 8.0]}), sep="\\n")
    untraced 3.000 (2.500 to 3.500)
    empty programs of --memleak 4.500 (3.750 to 5.250), +1.500, ratio 1.500 (1.500 to 1.500)
    --memleak --stacks off 6.000 (5.000 to 7.000), +3.000, ratio 2.000 (2.000 to 2.000), to empty programs 1.333 (1.333 to 1.333)
    """
    first = next(iter(values.values()))
    shown = []
    for variant, measured in values.items():
        text = f"{variant} {spread(measured)}"
        if shown:
            added = statistics.median(m - f for m, f in zip(measured, first))
            text += f", {added:+.3f}, ratio {spread([m / f for m, f in zip(measured, first)])}"
        for name, floor in values.items():
            start, _, modes = name.partition(" of ")
            if start == EMPTY_PROGRAMS and modes and variant.startswith(modes):
                text += f", to empty programs {spread([m / f for m, f in zip(measured, floor)])}"
        shown.append(text)
    return shown


def in_turn(bench, program, modes, rounds, unit, check=None):
    """{variant: figures} of the program's timed steps, all variants once in each round, forwards and
    backwards; `unit` is the figure's name. `check` gets each report. A variant that fails is left out from then on."""
    figures = {variant: [] for variant in modes}
    modes = dict(modes)
    end = time.monotonic() + MOST_SECONDS
    for number in range(rounds):
        if time.monotonic() > end:
            break
        for variant, wanted in list(modes.items())[:: -1 if number % 2 else 1]:
            try:
                figure, report = program.run(wanted)
            except Failed as reason:
                # Other tools are not judged.
                failed = bench.fail if isinstance(program, Timed) else partial(bench.figure, "NOT MEASURED")
                failed(f"{variant}: {reason}")
                del modes[variant]
                continue
            figures[variant].append(figure[unit])
            if report:
                bench.equal(f"lost, {variant}", {}, losses(report))
                if check:
                    check(report)
    if not figures["untraced"]:
        raise Failed("the untraced program gave no figure")
    # A program that has ended has failed for each variant.
    if modes:
        program.end()
    return {variant: some for variant, some in figures.items() if some}


def show(bench, name, unit, figures):
    rounds = len(figures["untraced"])
    lines = "".join(f"\n    {line}" for line in ratios(figures))
    bench.figure(f"{name}, {unit}, medians (and quartiles) of {rounds} taken in turn", lines)


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

    def check(report):
        bench.equal(f"{part} {key}", expected, report[part][key])

    program = TimedWorkload(bench, build, prepare, command)
    show(bench, name, "us", in_turn(bench, program, with_others(bench, modes), rounds, "us", check))


# ---- steps of PyTorch -----------------------------------------------------------


def measure_step(bench, step):
    if bench.is_missing("torch"):
        return
    name, unit, modes, rounds = STEPS[step]
    if not bench.floor:
        bench.figure(bench.label, "no GPU_CHECK_FLOOR: empty programs are NOT MEASURED")
        modes = {variant: some for variant, some in modes.items() if not isinstance(some, Empty)}
    show(bench, name, unit, in_turn(bench, TimedScript(bench, step), modes, rounds, unit))


def measure_first_second(bench):
    """On hosts with several GPUs, where the driver's queries for the current device are probed for a while."""
    if bench.is_missing("torch", gpus=2):
        return
    program = TimedScript(bench, "train=20")
    modes = ("--memleak", "--tensors", "off", "--stacks", "off")
    figures = {"untraced": [], "first second": [], "third second": []}
    for _ in range(ROUNDS):
        figures["untraced"].append(program.step()["mean_ms"])
        with bench.trace("--pid", str(program.pid), modes=modes, interval="1h") as tracer:
            tracer.wait_tracing()
            begun, second = time.monotonic(), {}
            while time.monotonic() < begun + 3:
                second.setdefault(int(time.monotonic() - begun), []).append(program.step()["mean_ms"])
            tracer.finish()
        figures["first second"].append(statistics.fmean(second[0]))
        figures["third second"].append(statistics.fmean(second[2]))
    program.end()
    show(bench, "a PyTorch training step after attaching", "ms", figures)


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
    found = {"untraced": None, "gpuprobe": ([bench.gpuprobe, *options, "--output", out, "--"], {})}
    found |= nsys(bench, "peer")
    sanitizer = find("compute-sanitizer", "bin/compute-sanitizer")
    return found | ({"compute-sanitizer": ([sanitizer], {})} if sanitizer else {})


class Started:
    """A command that each tool starts: a prefix of the command, and an environment. Its figures are in the
    last line that has some."""

    def __init__(self, bench, command, unit):
        self.bench, self.command, self.unit = bench, command, unit

    def run(self, tool):
        prefix, extra = tool or ([], {})
        env = self.bench.environment(os.environ | extra)
        try:
            done = subprocess.run(
                [*prefix, *self.command], capture_output=True, text=True, env=env, timeout=TOOL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"it took more than {TOOL_SECONDS} s") from error
        found = [figures_in(line) for line in done.stdout.splitlines()]
        found = [figures for figures in found if figures.get(self.unit)]
        if not found:
            raise Failed((done.stderr or done.stdout or "it said nothing").strip().splitlines()[-1])
        return found[-1], None

    def end(self):
        pass


def figures_in(line):
    """
    >>> figures_in('{"step": "train", "ms": 2.5}'), figures_in("ok pairs=4 ns=100"), figures_in("ready 7")
    ({'step': 'train', 'ms': 2.5}, {'us': 0.025}, {'us': None})
    """
    return json.loads(line) if line.startswith("{") else {"us": us_each(line)}


def compare_tools(bench, what, unit, command, found):
    show(bench, what, unit, in_turn(bench, Started(bench, command, unit), found, TOOL_ROUNDS, unit))


def compare_training(bench, by, found):
    if not bench.is_missing("torch"):
        command = bench.script("torch_cost.py", "train=5", TRAINING_STEP)
        compare_tools(bench, f"a PyTorch training step, by {by}", "ms", command, found)


def measure_tools(bench):
    for what, commands, mode in (
        ("a cudaMalloc + cudaFree pair", "timepairs 200 65536; timepairs 5000 65536", "--memleak"),
        ("a launch", f"timelaunch {LAUNCHES}", "--cudatrace"),
    ):
        command = [bench.program("workload"), "-c", f"{commands}; exit"]
        compare_tools(bench, f"{what}, by tool", "us", command, tools(bench, mode))
    compare_training(bench, "tool", tools(bench, "--memleak"))


# The kinds of the minimal sample, for a comparison: as many kinds.
KINDS = {
    "kernels": ("concurrent_kernel", "10"),
    "kernels and calls": ("concurrent_kernel,driver,runtime", "10,4,5"),
    "all kinds": (None, "8,9,4,5,1,22,2,10,49,50,38,17,11,12,37,39"),
}


def collectors(bench):
    out = str(bench.directory / "activity-cost.txt")
    found = {"untraced": None}
    for name, (ours, theirs) in KINDS.items():
        option = f"--activity={ours}" if ours else "--activity"
        found[f"gpuprobe, {name}"] = ([bench.gpuprobe, option, "--output", out, "--"], {})
        if cupti := bench.cupti():
            found[f"minimal, {name}"] = ([], cupti[0] | {"CUPTI_MINIMAL_KINDS": theirs})
    return found | nsys(bench, "activity-cost-nsys")


def measure_activity(bench):
    command = [bench.program("workload"), "-c", f"timelaunch 1000; timelaunch {LAUNCHES}; exit"]
    compare_tools(bench, "a launch, by collector", "us", command, collectors(bench))
    compare_training(bench, "collector", collectors(bench))


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
