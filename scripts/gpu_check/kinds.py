"""Checks of every kind of memory: the workload, compared with its own counts and NVML."""

from expect import compare_frame
from expect_kinds import (
    MIB,
    allocations_of,
    compare_calls,
    compare_nvml,
    compare_process,
    compare_variables,
    compare_virtual,
    process_of,
)
from workload import numbers_of, start, trace

PLAIN = "alloc 3145728 2; timepairs 1 3145728"
CONTEXT_KINDS = f"""{PLAIN}; pitched 1000 100; pitched3d 1000 10 10; managed 1048576
    pinned 1048576; hostalloc 1048576; register 1048576
    array 64 64 0 1 float; array 32 16 8 4 float; mipmap 64 64 0 3 1 float"""
ASYNC = "async 3145728 2; kfree {last}; synchronize"
# What a pool reserves shows once the program asks.
POOL = "pool create; poolalloc {pool} 5242880; synchronize; pool attr {pool}"
# Physical memory that is never mapped; and some that is mapped twice and retained.
VMM = """vcreate 2097152; vcreate 4194304; vreserve 16777216
    vmap {vmm} {reservation}; vmap {vmm} {reservation} 8388608; vretain {vmm}"""
VMM_RELEASE = "vrelease {vmm} 2; vunmap {reserved} 4194304"
VMM_UNMAP = "vunmap {second} 4194304; vfreeaddr {reservation}"
SHARE = "vcreate 2097152; vexport {vmm}; vimport {fd} 2097152"
SHARE_MAP = "vreserve 2097152; vmap {last} {reservation}"
SHARE_END = "vrelease {last}; vunmap {reserved} 2097152; vfreeaddr {reservation}"
GRAPH = "gnew; galloc {graph} 2097152"
GRAPH_LAUNCH = "glaunch {graph}; synchronize"
CAPTURED = """gcapture; galloc {graph} 4194304; gendcapture {graph}; glaunch {graph}
    synchronize; gdestroy {graph}"""
FREE = "kfreeall; freeall; synchronize"
CONTEXT = """ctx create; alloc 2097152; managed 1048576; hostalloc 1048576; array 64 64 0 1 float
    async 2097152; vcreate 2097152; synchronize"""

# After each: a report, compared with the workload's status. The numbers are what the status is
# corrected by, and the mapped and reserved bytes.
STARTED = (
    ("kinds of a context", CONTEXT_KINDS, {}),
    ("graph", GRAPH, {}),
    ("graph launched", GRAPH_LAUNCH, {}),
    # A launch while its memory is live fails: no memory call.
    ("graph again", "! glaunch {graph}; gdestroy {graph}; " + CAPTURED, {"failed": -1}),
    ("free", FREE, {}),
    ("all again", f"{CONTEXT_KINDS}; {ASYNC}", {}),
    ("pool", POOL, {}),
    ("pool destroyed", "pool destroy {pool}", {}),
    ("vmm", VMM, {"mapped": 8 * MIB, "reserved": 16 * MIB}),
    ("vmm released", VMM_RELEASE, {"mapped": 4 * MIB, "reserved": 16 * MIB}),
    ("vmm unmapped", VMM_UNMAP, {"mapped": 0, "reserved": 0}),
    # What an imported handle has shows once it is mapped.
    ("share", SHARE, {"imported_bytes": -2 * MIB}),
    ("share mapped", SHARE_MAP, {}),
    ("share ended", SHARE_END, {}),
    # The runtime takes a new context at its next call. Were that a free, the driver would first refuse
    # it for the runtime's old one, which is a failed call to who traces the driver.
    ("reset", "reset; synchronize", {}),
    ("free after the reset", "? kfreeall; ? freeall", {}),
)
# Contexts are the driver's alone.
STARTED_DRIVER = (
    *STARTED[:-2],
    ("context", CONTEXT, {}),
    ("context destroyed", "ctx destroy {ctx}", {}),
    *STARTED[-2:],
)
# The first before gpuprobe attaches. What it holds is freed by the last.
LATE = (
    ("before", f"{CONTEXT_KINDS}; {ASYNC}; vcreate 2097152", {}),
    ("kinds", f"{CONTEXT_KINDS}; {ASYNC}; {POOL}; pool destroy {{pool}}", {}),
    ("vmm", f"{VMM}; {VMM_RELEASE}", {}),
    ("graph", f"{VMM_UNMAP}; {SHARE}; {SHARE_MAP}; {SHARE_END}; {GRAPH}; {GRAPH_LAUNCH}", {}),
    ("free", FREE, {}),
)
INTERVAL = "100ms"


def compare_after(bench, name, comparisons):
    for what, expected, got in comparisons:
        bench.equal(f"after {name}: {what}", expected, got)


def corrected(status, *changes):
    """The status, with what gpuprobe counts otherwise.

    >>> corrected(dict(failed=3, live=2), dict(failed=-1, mapped=7), dict(failed=-1))
    {'failed': 1, 'live': 2}
    """
    return {name: number + sum(change.get(name, 0) for change in changes) for name, number in status.items()}


def compare_pool(bench, report, workload):
    said = numbers_of(workload.run("pool attr {pool}"))
    handle = int(workload.names["pool_handle"], 16)
    got = [
        (pool["used_bytes"], pool["reserved_bytes"])
        for pool in process_of(report, workload.pid)["pools"]
        if pool["pool"] and int(pool["pool"], 16) == handle
    ]
    bench.equal("pool of its own", [(said["used"], said["reserved"])], got)


def check_kinds_started(bench, build, *options):
    tracer, workload = trace(bench, build, *options, interval=INTERVAL)
    failed = 0
    for name, commands, change in STARTED_DRIVER if build == "workload_driver" else STARTED:
        workload.run(commands)
        report = tracer.fresh_report()
        failed += change.get("failed", 0)
        status = corrected(workload.memory(), change | {"failed": failed})
        compare_after(bench, name, compare_frame(report))
        compare_after(bench, name, compare_process(report, workload.pid, status))
        compare_after(bench, name, compare_calls(report, [status]))
        if "mapped" in change:
            virtual = compare_virtual(report, workload.pid, change["mapped"], change["reserved"])
            compare_after(bench, name, virtual)
        if name == "pool":
            compare_pool(bench, report, workload)
    workload.end(bench)
    tracer.finish()


def check_kinds_late(bench, build, *options):
    workload = start(bench, build)
    workload.run(LATE[0][1])
    before = workload.memory()
    tracer = bench.trace("--pid", str(workload.pid), *options, interval=INTERVAL)
    tracer.wait_tracing()
    for name, commands, _ in LATE[1:]:
        workload.run(commands)
        freed = name == "free"
        report, status = tracer.fresh_report(), workload.memory()
        unknown = sum(n for key, n in before.items() if key.endswith("_live")) if freed else 0
        compare_after(bench, name, compare_frame(report))
        old = None if freed else before
        compare_after(bench, name, compare_process(report, workload.pid, status, old))
        compare_after(bench, name, compare_calls(report, [status], before, unknown))
    tracer.finish()
    workload.end(bench)


def check_kinds_everywhere(bench, build, *options):
    """Two processes: one exports, the other opens its memory twice and closes it again."""
    tracer = bench.trace(*options, interval=INTERVAL)
    tracer.wait_tracing()
    exporter, opener = start(bench, build), start(bench, build)
    for one in (exporter, opener):
        one.run("synchronize")
    tracer.fresh_report()  # by then both are traced
    exporter.run(f"{PLAIN}; pinned 1048576; hostalloc 1048576; register 1048576; {VMM}")
    exporter.run("alloc 4194304; ipcget 2")
    handle = exporter.names["ipc"]
    for name, commands in (
        ("nothing is open", "synchronize"),
        ("open", f"ipcopen {handle}; ipcopen {handle}"),
        ("closed once", "ipcclose 0"),
        ("closed twice", "ipcclose 0"),
    ):
        opener.run(commands)
        statuses = [one.memory() for one in (exporter, opener)]
        report = tracer.fresh_report()
        compare_after(bench, name, compare_frame(report))
        for one, status in zip((exporter, opener), statuses):
            compare_after(bench, name, compare_process(report, one.pid, status, {}))
        compare_after(bench, name, compare_calls(report, statuses))
    exporter.end(bench)
    opener.end(bench)
    tracer.finish()


VARIABLES = {"standin_counter": 4096, "standin_table": 65536}
MODULE = "module read gp_table=1048576 gp_shared=m8192 via=library; symbol gp_table; symbol gp_shared"


def check_variables(bench, build, *options):
    """Variables of the program, and of a module that goes again."""
    tracer, workload = trace(bench, build, *options, interval=INTERVAL)
    of_module = {"gp_table": 1048576, "gp_shared": 8192}
    for commands, variables in (
        ("symbol standin_counter; symbol standin_table", VARIABLES),
        (MODULE, VARIABLES | of_module),
        ("unload {module}", VARIABLES),
    ):
        workload.run(commands)
        report = tracer.fresh_report()
        bench.all_equal(compare_variables(report, workload.pid, variables, "gp_shared"))
        bench.all_equal(compare_process(report, workload.pid, workload.memory()))
        names = {a.get("name") for a in allocations_of(process_of(report, workload.pid))}
        if variables is VARIABLES:
            bench.equal("variables of the module that is gone", set(), names & of_module.keys())
    workload.end(bench)
    tracer.finish()


def check_facts(bench, build):
    """What gpuprobe relies on, and no documentation says: which memory a reset leaves."""
    workload = start(bench, build)
    workload.run("alloc 1048576; async 1048576; vcreate 2097152; synchronize; reset")
    workload.run("kfree 0; kfree 1; ! freeaddr {block}")
    bench.equal("frees of stream-ordered and of physical memory", 2, workload.memory()["frees"])
    workload.end(bench)


# ---- NVML --------------------------------------------------------------------

GROWN_BLOCKS = 50


def nvml_bytes(pid):
    """NVML's own figure for a process; None without NVML, or if it does not know."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        used = 0
        for index in range(pynvml.nvmlDeviceGetCount()):
            device = pynvml.nvmlDeviceGetHandleByIndex(index)
            rows = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
            used += sum(row.usedGpuMemory or 0 for row in rows if row.pid == pid)
        return used or None
    except pynvml.NVMLError:
        return None


def check_nvml(bench, build, late):
    """The reconciliation line adds up, and includes the program's memory."""
    if late:
        workload = start(bench, build)
        workload.run("synchronize")
        tracer = bench.trace("--pid", str(workload.pid), interval=INTERVAL)
        tracer.wait_tracing()
    else:
        tracer, workload = trace(bench, build, interval=INTERVAL)
    lines = []
    for commands in ("synchronize", f"alloc 2097152 {GROWN_BLOCKS}"):
        workload.run(commands)
        process = process_of(tracer.fresh_report(), workload.pid)
        lines.append(process.get("nvml"))
        direct = nvml_bytes(workload.pid)
        if lines[-1]:
            bench.all_equal(compare_nvml(process))
            if direct is not None:
                bench.equal("used_bytes as pynvml says", direct, lines[-1]["used_bytes"])
        elif direct is not None and process:
            bench.fail(f"NVML knows of {direct} bytes, the report says nothing")
    workload.end(bench)
    tracer.finish()
    first, second = lines
    if not second:
        bench.figure(bench.label, "NVML does not know the process: NOT CHECKED")
        return
    bench.figure(bench.label, f"{first}, then {second}")
    grown = GROWN_BLOCKS * 2 * MIB
    bench.equal("tracked_bytes", grown, second["tracked_bytes"])
    if first:
        off = abs(second["used_bytes"] - first["used_bytes"] - grown)
        bench.equal("used grew by what was allocated, within 1 MiB", True, off <= MIB)
    if second["context_bytes"] is None:
        bench.equal("the context's part is known of a process seen from its start", True, late)
    else:
        off = abs(second["other_bytes"] - second["context_bytes"])
        bench.equal("the rest is the context, within 1 MiB", True, off <= MIB)
