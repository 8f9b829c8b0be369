"""Benchmarks: the cost of launches untraced, traced, and under CUPTI.

They are printed, not judged; that no launch was missed is judged.
"""

import statistics

from bench import ALL_MODES
from expect import losses
from frameworks import environment, is_missing

ROUNDS = 5
TURNS = 11
LAUNCHES = 100_000
# Differences of a few percent, below the noise, are measured longer.
TRAINING_ROUNDS = 11
TRAINING_STEPS = 100
LARGE_STEPS = 40
TENSOR_ROUNDS = 7
ASYNC_PAIRS = 20_000
GRAPH_LAUNCHES = 20_000

# The traced modes; gpuprobe attaches to the waiting program and detaches again.
LAUNCH_MODES = {
    "untraced": None,
    "--cudatrace": ("--cudatrace",),
    "all three": ALL_MODES,
}
MEMORY_MODES = {
    "untraced": None,
    "--memleak": ("--memleak",),
}
STEP_MODES = {
    "untraced": None,
    "--memleak": ("--memleak",),
    "all three": ALL_MODES,
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
    """A program that waits, and does one timed step each time it may go on.
    The first, untimed by us, warms it up."""

    def __init__(self, bench, command, step, runs, env):
        self.bench = bench
        self.name = step.partition("=")[0]
        self.process = bench.start(*command, "init", step, *("wait", step) * runs, env=env)
        self.waits = 0

    def ready(self):
        self.waits += 1
        self.process.truth("wait", self.waits)

    def run(self, modes=None):
        """(line of the timed step, final report if it was traced)."""
        self.ready()
        tracer = None
        if modes == EMPTY_PROGRAMS:
            floor = self.bench.hold_floor(self.process.pid)
            self.process.go()
            line = self.process.truth(self.name, self.waits + 1)
            floor.release()
            return line, None
        if modes:
            program = self.bench.before if isinstance(modes, Earlier) else None
            tracer = self.bench.trace("--pid", str(self.process.pid), modes=modes, program=program)
            tracer.wait_tracing()
            tracer.fresh_report()
            tracer.fresh_report()
        self.process.go()
        line = self.process.truth(self.name, self.waits + 1)
        return line, tracer.finish()[1] if tracer else None


def compare_in_turn(bench, command, step, modes, check, rounds=ROUNDS):
    """{variant: lines} of the timed steps, all variants once in each round.
    `check` gets each report and its modes."""
    cupti = bench.cupti()
    plain = Timed(bench, command, step, rounds * len(modes), environment(bench))
    other = cupti and Timed(bench, command, step, rounds, environment(bench, cupti[0]))
    lines = {}
    for _ in range(rounds):
        for variant, wanted in modes.items():
            line, report = plain.run(wanted)
            lines.setdefault(variant, []).append(line)
            if report:
                check(report, wanted)
        if other:
            line, _ = other.run()
            lines.setdefault("CUPTI kernel records", []).append(line)
    for program in (plain, other) if other else (plain,):
        bench.equal("exit status of the program", 0, program.process.wait())
    return lines


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


def show(bench, name, unit, lines, value, scale=1):
    scaled = {variant: [scale * line[value] for line in some] for variant, some in lines.items()}
    rounds = len(next(iter(lines.values())))
    bench.figure(
        f"{name}, {unit}, medians (and spread) of {rounds} taken in turn",
        "; ".join(ratios(scaled)),
    )
    if bench.cupti() is None:
        bench.figure(name, "no CUPTI to compare with: NOT MEASURED")


def measure_launch(bench):
    def check(report, _):
        bench.equal("timed launches seen", LAUNCHES, report["cudatrace"]["launches"])
        bench.equal("lost", {}, losses(report))

    command = [bench.program("launch_shared")]
    step = f"time={LAUNCHES}"
    lines = compare_in_turn(bench, command, step, with_others(bench, LAUNCH_MODES), check, rounds=TURNS)
    show(bench, f"a launch of {LAUNCHES} of an empty kernel", "us", lines, "ns_per_launch", scale=1e-3)


def measure_async_pair(bench):
    def check(report, _):
        bench.equal("timed pairs seen", ASYNC_PAIRS, report["memleak"]["free_calls"])
        bench.equal("lost", {}, losses(report))

    command = [bench.program("launch_shared")]
    step = f"time-async={ASYNC_PAIRS}"
    lines = compare_in_turn(bench, command, step, with_others(bench, MEMORY_MODES), check, rounds=TURNS)
    show(bench, "a cudaMallocAsync + cudaFreeAsync pair", "us", lines, "ns_per_pair", scale=1e-3)


def measure_graph_launch(bench):
    """Of a graph that allocates and frees: nothing of it is live after a launch."""

    def check(report, _):
        bench.equal("live_bytes", 0, report["memleak"]["live_bytes"])
        bench.equal("lost", {}, losses(report))

    command = [bench.program("launch_static")]
    step = f"time-graph={GRAPH_LAUNCHES}"
    lines = compare_in_turn(bench, command, step, MEMORY_MODES, check)
    show(bench, "a cuGraphLaunch with memory nodes", "us", lines, "ns_per_launch", scale=1e-3)


def tensors_in_turn(bench, step, count, unit, modes):
    """{variant: values} of a timed step of torch_tensors.py, all variants once in each round."""
    command = bench.script("torch_tensors.py")
    program = Timed(bench, command, f"{step}={count}", TENSOR_ROUNDS * len(modes), None)
    values = {}
    for _ in range(TENSOR_ROUNDS):
        for variant, wanted in modes.items():
            line, report = program.run(wanted)
            values.setdefault(variant, []).append(line[step][unit])
            if report:
                bench.equal("lost", {}, losses(report))
    bench.equal("exit status", 0, program.process.wait())
    return values


def measure_large_step(bench):
    """A step of a model that keeps the GPU busy: the CPU time of the program's threads is hidden
    meanwhile."""
    if is_missing(bench, "torch"):
        return
    values = tensors_in_turn(bench, "large", LARGE_STEPS, "ms", MEMORY_MODES)
    bench.figure("a training step that the GPU is busy with, ms, medians taken in turn", "; ".join(ratios(values)))


def measure_training_step(bench):
    """A step launches several hundred kernels; its allocations come from a cache."""
    if is_missing(bench, "torch", "triton"):
        return
    launches = []

    def check(report, modes):
        bench.equal("lost", {}, losses(report))
        if "--cudatrace" in modes:
            launches.append(report["cudatrace"]["launches"] / TRAINING_STEPS)

    command = bench.script("torch_train.py")
    step = f"train={TRAINING_STEPS}"
    modes = dict(STEP_MODES)
    if bench.floor:
        modes[EMPTY_PROGRAMS] = EMPTY_PROGRAMS
    lines = compare_in_turn(bench, command, step, modes, check, rounds=TRAINING_ROUNDS)
    name = f"a PyTorch training step of {launches[0]:.0f} launches"
    show(bench, f"{name}, the median of a run", "ms", lines, "ms_per_step")
    show(bench, f"{name}, the quickest of a run", "ms", lines, "ms_quickest_step")
    if not bench.floor:
        bench.figure("empty programs in a training step", "no GPU_CHECK_FLOOR: NOT MEASURED")
    bench.equal("launches of a step, in each round", launches[:1] * len(launches), launches)
