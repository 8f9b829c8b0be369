"""Compares gpuprobe's reports with the known actions of CUDA programs, on a real GPU.

gpu-check.sh builds the programs of tests/gpu and runs this. Each program says
as JSON lines on its standard output exactly what it did; each check runs one
under gpuprobe and compares the reports. Adding a check is writing a function
and naming it in CHECKS.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from activity import (
    check_activity,
    check_activity_pytorch,
    check_markers,
    check_profiler_beside,
    check_quick_exit,
    check_rate,
)
from activity import check_same_as_nsys as check_activity_same_as_nsys
from alone import check_alone
from bench import Bench, summary
from children import TOTAL_SECONDS, Deadline, Failed, adopt_orphans, end_children
from blocks import check_blocks, check_blocks_paced, check_census, check_jax_memory_late
from copies import check_copies_by_line, check_copies_late, check_copies_started, check_throughput, check_unified
from cost import (
    CALLS,
    SECONDS_OF_STEPS,
    TRAINING_STEP,
    measure_activity,
    measure_call,
    measure_first_second,
    measure_start_and_idle,
    measure_step,
    measure_tools,
)
from explained import check_clean, check_planted
from frameworks import (
    check_cupy_late,
    check_cupy_memory,
    check_cupy_started,
    check_jax_late,
    check_jax_memory,
    check_jax_started,
    check_torch_train_late,
    check_torch_train_started,
)
from hit_cost import measure_hits
from incidents import check_out_of_memory, check_out_of_memory_beside
from kernels import (
    check_compiled,
    check_launches_everywhere,
    check_launches_late,
    check_launches_started,
)
from kinds import (
    check_facts,
    check_kinds_everywhere,
    check_kinds_late,
    check_kinds_started,
    check_nvml,
    check_variables,
)
from objects import check_objects
from plain import (
    check_everywhere,
    check_exit_status,
    check_killed_command,
    check_killed_process,
    check_late,
    check_late_others,
    check_late_own,
    check_new_copy,
    check_started,
)
from pytorch import (
    check_devices,
    check_gpt2_late,
    check_torch_async,
    check_torch_everywhere,
    check_torch_expandable,
    check_torch_history,
    check_torch_late,
    check_torch_started,
    check_user_lines,
)
from recordings import (
    check_nsys_reads,
    check_recorded_program,
    check_recorded_pytorch,
    check_same_as_nsys,
    check_samples,
)
from stacks import check_sanitizer, check_stacks_pytorch, check_stacks_sanitizer
from stress import STRESS, check_stress
from tensors import check_tensors, check_tensors_ddp, check_tensors_late
from workload import BUILDS as WORKLOADS

# The program, and the function that its allocations are reported under.
PLAIN_PROGRAMS = {
    "shared": ("workload", "cudaMalloc"),
    "static": ("workload_static", "cuMemAlloc_v2"),
    "driver": ("workload_driver", "cuMemAlloc_v2"),
    "driver, own context": ("workload_driver", "cuMemAlloc_v2", "--ctx", "create"),
}

# Launches and copies: the program's build, and which layer is traced.
BUILDS = {
    "shared": ("workload",),
    "static": ("workload_static",),
    "runtime": ("workload", "--api", "runtime"),
    "stream per thread": ("workload_ptsz",),
    "runtime, stream per thread": ("workload_ptsz", "--api", "runtime"),
}
LAUNCHES = BUILDS | {"driver": ("workload_driver",)}
COMPILED = {
    "shared": ("allocations_shared",),
    "static": ("allocations_static",),
    "runtime": ("allocations_shared", "--api", "runtime"),
    "stream per thread": ("allocations_ptsz",),
}

# Memory of every kind has variants with a stream per thread, and VMM uses the driver in every build.
KINDS = {
    "shared": ("workload",),
    "shared, by the driver": ("workload", "--api", "driver"),
    "static": ("workload_static",),
    "stream per thread": ("workload_ptsz",),
    "driver": ("workload_driver",),
}
WHOLE_HOST = {name: KINDS[name] for name in ("shared", "static", "driver")}


def each(what, check, builds):
    return {f"{what}, {name}": (check, *row) for name, row in builds.items()}


CHECKS = {
    **{f"alone, {build}": (check_alone, build) for build in WORKLOADS},
    **{f"{name}, started": (check_started, *row) for name, row in PLAIN_PROGRAMS.items()},
    **{f"{name}, late": (check_late, *row) for name, row in PLAIN_PROGRAMS.items()},
    **{f"{name}, whole host": (check_everywhere, *row) for name, row in PLAIN_PROGRAMS.items()},
    "late, by a user": (check_late_own, "workload", "cudaMalloc"),
    "late, of root, by a user": (check_late_others, "workload", "cudaMalloc"),
    "new copy of the runtime": (check_new_copy,),
    "killed command": (check_killed_command,),
    "killed process": (check_killed_process,),
    "exit status": (check_exit_status,),
    "PyTorch, started": (check_torch_started,),
    "PyTorch, late": (check_torch_late,),
    "PyTorch, whole host": (check_torch_everywhere,),
    **each("kinds started", check_kinds_started, KINDS),
    **each("kinds late", check_kinds_late, KINDS),
    **each("kinds whole host", check_kinds_everywhere, WHOLE_HOST),
    **each("variables", check_variables, WHOLE_HOST),
    "facts, runtime": (check_facts, "workload"),
    "facts, driver": (check_facts, "workload_driver"),
    "compute-sanitizer, shared": (check_sanitizer, "workload"),
    "compute-sanitizer, driver": (check_sanitizer, "workload_driver"),
    "NVML, started": (check_nvml, "workload", False),
    "NVML, late": (check_nvml, "workload", True),
    "PyTorch memory, expandable segments": (check_torch_expandable,),
    "PyTorch memory, cudaMallocAsync": (check_torch_async,),
    "CuPy memory": (check_cupy_memory,),
    "JAX memory": (check_jax_memory,),
    "two GPUs": (check_devices,),
    **each("launches started", check_launches_started, LAUNCHES),
    **each("launches late", check_launches_late, LAUNCHES),
    "launches, whole host": (check_launches_everywhere, "workload_driver"),
    **each("compiled launches", check_compiled, COMPILED),
    **each("copies started", check_copies_started, BUILDS),
    **each("copies late", check_copies_late, BUILDS),
    "throughput, driver": (check_throughput, "workload"),
    "throughput, runtime": (check_throughput, "workload", "--api", "runtime"),
    "unified": (check_unified, "workload"),
    "copies by line": (check_copies_by_line,),
    "PyTorch training, started": (check_torch_train_started,),
    "PyTorch training, late": (check_torch_train_late,),
    "JAX, started": (check_jax_started,),
    "JAX, late": (check_jax_late,),
    "CuPy, started": (check_cupy_started,),
    "CuPy, late": (check_cupy_late,),
    "recording, same as nsys": (check_same_as_nsys, "allocations_shared"),
    "recording and live, shared": (check_recorded_program, "workload"),
    "recording and live, static": (check_recorded_program, "workload_static"),
    "recording and live, PyTorch": (check_recorded_pytorch,),
    "recording, NVML samples": (check_samples, "allocations_shared"),
    "recording, nsys reads it": (check_nsys_reads, "allocations_shared"),
    "stacks, compute-sanitizer": (check_stacks_sanitizer, "allocations_shared"),
    "stacks, PyTorch": (check_stacks_pytorch,),
    "Python, PyTorch's history": (check_torch_history,),
    "Python, transformers": (check_user_lines, "torch,transformers", "train_libraries.py", "transformers"),
    "PyTorch, GPT-2 late": (check_gpt2_late,),
    "Python, lightning": (check_user_lines, "torch,lightning", "train_libraries.py", "lightning"),
    "Python, JAX": (check_user_lines, "jax", "jax_program.py", "lines"),
    "Python, CuPy": (check_user_lines, "cupy", "cupy_program.py", "lines"),
    "tensors, training": (check_tensors, "train leak=50"),
    "tensors, random sizes": (check_tensors, "churn leak=20"),
    "tensors, expandable": (check_tensors, "train churn=500", "expandable_segments:True"),
    "tensors, CUDA graphs": (check_tensors, "graphs"),
    "tensors, two streams": (check_tensors, "streams"),
    "tensors, late": (check_tensors_late,),
    "blocks, training": (check_blocks, "torch_tensors.py", "train leak=50", "train=5 release leak=3"),
    "blocks, GPT-2": (check_blocks, "train_libraries.py", "gpt2=10", "gpt2=5"),
    "blocks, inference": (check_blocks, "torch_tensors.py", "cache=200", "cache=20"),
    "blocks, CUDA graphs": (check_blocks, "torch_tensors.py", "graphs recorded", "train=5"),
    "blocks, streams": (check_blocks, "torch_tensors.py", "streams", "train=5"),
    "blocks, expandable": (check_blocks, "torch_tensors.py", "train churn=500", "churn=100", "expandable_segments:True"),
    "blocks, history": (check_blocks, "torch_tensors.py", "train history leak=50 churn=200", "leak=3"),
    "blocks, two GPUs": (
        check_blocks,
        "torch_tensors.py",
        "train device=1 leak=50 streams device=0 churn=200",
        "leak=3 device=1 churn=100",
    ),
    "blocks, 30 GB": (check_blocks, "torch_tensors.py", "churn=95000", "churn=100"),
    "blocks, no stop": (check_blocks_paced,),
    "census": (check_census,),
    "JAX memory, late": (check_jax_memory_late,),
    "tensors, DDP": (check_tensors_ddp,),
    "PyTorch out of memory": (check_out_of_memory,),
    "PyTorch out of memory, after training": (check_out_of_memory, "train", "churn=500"),
    "PyTorch out of memory, another process": (check_out_of_memory_beside,),
    "verdicts, clean": (check_clean,),
    "verdicts, planted": (check_planted,),
    "objects": (check_objects,),
    **{f"stress, PyTorch, {name}": (check_stress, "torch", name) for name in STRESS},
    **{f"stress, CuPy, {name}": (check_stress, "cupy", name) for name in ("paced", "anomaly")},
    "activity, shared": (check_activity, "workload"),
    "activity, static": (check_activity, "workload_static"),
    "activity, stream per thread": (check_activity, "workload_ptsz"),
    "activity, same as nsys": (check_activity_same_as_nsys, "workload"),
    "activity, PyTorch": (check_activity_pytorch,),
    "activity, NVTX": (check_markers,),
    "activity, PyTorch's profiler": (check_profiler_beside,),
    "activity, _exit": (check_quick_exit,),
    **{f"activity, rate, {n} threads": (check_rate, n) for n in (1, 4, 8)},
    "cost of activity": (measure_activity,),
    "start and idle": (measure_start_and_idle,),
    **{f"cost of {name}": (measure_call, name) for name in CALLS},
    "cost of a hit": (measure_hits,),
    "cost of a training step": (measure_step, TRAINING_STEP),
    "cost of a training step's tensors": (measure_step, "pairs=50000"),
    "cost of a census": (measure_step, SECONDS_OF_STEPS),
    "cost of a large training step": (measure_step, "large=40"),
    "cost of the first second": (measure_first_second,),
    "cost under other tools": (measure_tools,),
}


def run_check(bench, label, check, *arguments):
    bench.label = label
    passed, failed = bench.passed, len(bench.failures)
    start = time.monotonic()
    try:
        if start > Deadline.end:
            raise Failed(f"not run: all checks together may take {TOTAL_SECONDS} s")
        check(bench, *arguments)
    except Failed as reason:
        bench.fail(str(reason))
    except (KeyError, TypeError, ValueError, OSError) as error:
        # A malformed report or line.
        bench.fail(f"{type(error).__name__}: {error}")
    finally:
        end_children()
    seconds = time.monotonic() - start
    print(summary(label, bench.passed - passed, len(bench.failures) - failed, seconds), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", type=Path, required=True, help="where what was compiled is")
    parser.add_argument("--sources", type=Path, required=True, help="tests/gpu")
    parser.add_argument("--directory", type=Path, required=True, help="for logs and reports")
    parser.add_argument("--only", default="", help="run the checks whose name contains this, or what else `|` separates")
    parser.add_argument("gpuprobe")
    options = parser.parse_args()

    # An exception, so that every exit path ends the children. A background job of a shell ignores
    # SIGINT, and so would its children.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    adopt_orphans()
    # The caching allocator's defaults, whatever the caller has set.
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        os.environ.pop(name, None)

    bench = Bench(options.gpuprobe, options.programs, options.sources, options.directory)
    try:
        for label, (check, *arguments) in CHECKS.items():
            if any(part in label for part in options.only.split("|")):
                run_check(bench, label, check, *arguments)
    finally:
        end_children()
    if bench.failures:
        print("# once more, what failed:", *bench.failures, sep="\n")
    print(f"{bench.passed} passed, {len(bench.failures)} failed")
    return 1 if bench.failures or not bench.passed else 0


if __name__ == "__main__":
    sys.exit(main())
