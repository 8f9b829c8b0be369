"""The workload without gpuprobe: every command of the checks, so that one run on a CUDA that is new
here shows which of them it takes."""

import re

from copies import UNIFIED, steps as copies
from kernels import CAPTURE, GRAPH, LOADED, STEPS, STORM, reload_of
from kinds import ASYNC, MODULE, STARTED, STARTED_DRIVER
from plain import run_all
from workload import start

DRIVER_ONLY = """primary retain; primary release; module beta via=function; launch beta 10; unload {module}
    copy batch 1048576 via=cuMemcpyBatchAsync_v2; copy batch-3d 1048576 via=cuMemcpy3DBatchAsync_v2"""
RUNTIME_ONLY = "launch 0 10 via=nvcc; "
MORE = """graph 10 3; gnew; ? galloc {graph} 2097152 node; ? galloc {graph} 2097152 node2; gtrim
    copy peer 1048576; vfreeall; churn 4 1000 4096 100; timepairs 2000 2048
    timelaunch 20000; ipcget 1; status"""


def check_alone(bench, build):
    """All replies go to a file; those of the first build are printed too, but for copies, of which
    there are many."""
    driver = build == "workload_driver"
    kinds = "; ".join(commands for _, commands, _ in (STARTED_DRIVER if driver else STARTED))
    with open(bench.directory / f"alone-{build}.txt", "w", encoding="utf-8") as log:

        def replied(command, reply, expected):
            shown = f"{command} -> " + re.sub(r" \w+=0(?= |$)", "", reply)[:120]
            print(shown, file=log, flush=True)
            if not expected:
                bench.fail(shown)
                return
            bench.ok()
            if build == "workload" and not re.search(r"\b(copy|set) ", command):
                print(f"    {shown}", flush=True)

        workload = start(bench, build)
        workload.replied = replied
        run_all(workload)
        workload.run(f"{LOADED}; {reload_of(build)}; {STEPS}; {CAPTURE}; {GRAPH}; {STORM}")
        workload.run(f"{MODULE}; unload {{module}}; symbol standin_counter; symbol standin_table")
        workload.run(DRIVER_ONLY if driver else RUNTIME_ONLY + f"{copies()}; {UNIFIED}")
        workload.run("vcreate 2097152; vreserve 2097152; vmap {vmm} {reservation}; " + MORE)
        workload.run(f"{kinds}; {ASYNC}; vcreate 2097152; reset; kfree {{vmm}}; ? kfreeall; alloc 4096; status")
        workload.end(bench)
