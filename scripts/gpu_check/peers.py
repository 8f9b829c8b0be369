"""Benchmarks: the same timed steps under other tools, where they are installed.

They have to start the program themselves, so each run is a new process; an
untraced one of the same kind is taken in turn with them.
"""

import glob
import json
import shutil
import subprocess

from cost import LAUNCHES, TRAINING_STEPS, ratios
from frameworks import environment, is_missing

ROUNDS = 3
SECONDS = 60
PAIRS = 5_000

TOOLKITS = ("/usr/local/cuda*", "/opt/nvidia/*")


def find(name, *places):
    """The program of this name, on the PATH or in a folder of the toolkit."""
    found = shutil.which(name)
    for place in places:
        for toolkit in TOOLKITS:
            found = found or next(iter(sorted(glob.glob(f"{toolkit}/{place}"))), None)
    return found


def peers(bench, tracer_options):
    """{tool: the command that the program's own comes after}."""
    out = bench.directory / "peer"
    found = {"untraced": []}
    found["gpuprobe"] = [bench.gpuprobe, *tracer_options, "--output", str(out) + ".txt", "--"]
    nsys = find("nsys", "bin/nsys", "host/target-linux-x64/nsys", "*/host/target-linux-x64/nsys")
    if nsys:
        profile = ["profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none"]
        found["nsys"] = [nsys, *profile, "--force-overwrite=true", "-o", str(out)]
    sanitizer = find("compute-sanitizer", "bin/compute-sanitizer")
    if sanitizer:
        found["compute-sanitizer"] = [sanitizer]
    return found


def timed(command, env, step, value):
    """The figure of the timed step, and why there is none."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"it took more than {SECONDS} s"
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    steps = [line for line in lines if line.get("step") == step]
    if steps:
        return steps[-1][value], None
    return None, (done.stderr or done.stdout or "it said nothing").strip().splitlines()[-1]


def compare(bench, what, command, step, value, options=("--memleak",)):
    values, missing = {}, {}
    tools = peers(bench, options)
    for _ in range(ROUNDS):
        for tool, prefix in tools.items():
            if tool in missing:
                continue
            number, why = timed(
                [*prefix, *command], environment(bench), step.partition("=")[0], value
            )
            if why:
                missing[tool] = why
            else:
                values.setdefault(tool, []).append(number)
    for tool, why in missing.items():
        bench.figure(f"{what}, {tool}", f"NOT MEASURED: {why}")
    if "untraced" in values:
        bench.figure(f"{what}, medians (and spread) of {ROUNDS}", "; ".join(ratios(values)))


def measure_peers(bench):
    program = [bench.program("launch_shared"), "init", "time-pairs=200", f"time-pairs={PAIRS}"]
    compare(bench, "a cudaMalloc + cudaFree pair, ns, by tool", program, "time-pairs", "ns_per_pair")
    program = [bench.program("launch_shared"), "init", f"time={LAUNCHES}"]
    compare(
        bench,
        "a launch, ns, by tool",
        program,
        "time",
        "ns_per_launch",
        ("--cudatrace",),
    )
    if is_missing(bench, "torch", "triton"):
        return
    program = bench.script("torch_train.py", "init", "train=5", f"train={TRAINING_STEPS}")
    compare(bench, "a PyTorch training step, ms, by tool", program, "train", "ms_per_step")
