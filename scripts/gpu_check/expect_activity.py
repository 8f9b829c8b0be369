"""Expected contents of activity reports, and comparisons."""

from collections import Counter

from expect import compare_frame, differ

KINDS = ("device", "pinned", "managed")


def add(sums, name, count, size):
    old = sums.get(name, (0, 0))
    sums[name] = (old[0] + count, old[1] + size)


def copies_of(process):
    """{direction, or `set`: (count, bytes)}.

    >>> rows = [dict(direction="H2D", mode="sync", count=1, bytes=8),
    ...     dict(direction="H2D", mode="async", count=2, bytes=9)]
    >>> copies_of(dict(copies=rows))
    {'H2D': (3, 17)}
    """
    sums = {}
    for row in process["copies"]:
        add(sums, row["direction"], row["count"], row["bytes"])
    return sums


def memory_of(process, operation):
    """{kind: (count, bytes)} of the kinds that the program tracks."""
    sums = {}
    for row in process["memory"]:
        if row["operation"] == operation and row["kind"] in KINDS:
            add(sums, row["kind"], row["count"], row["bytes"])
    return sums


def ran(process):
    """{mangled name: runs} of the kernels of a process."""
    counts = Counter()
    for row in process["kernels"]:
        counts[row["mangled"] or row["name"]] += row["count"]
    return counts


def compare_activity(report, after):
    """Yields (what, expected, got) for the kernels of a workload: what is launched runs, and what is
    captured runs with each launch of its graph.

    >>> kernel = dict(mangled="_Z1av", launches=2, captured=1)
    >>> after = dict(pid=7, kernels=[kernel], graph_launches=10)
    >>> process = dict(pid=7, complete=True, kernels=[dict(mangled="_Z1av", count=12)])
    >>> report = dict(schema=3, lost={}, activity=dict(processes=[process]))
    >>> [what for what, want, got in compare_activity(report, after) if want != got]
    []
    >>> process["kernels"][0]["count"] = 3
    >>> [what for what, want, got in compare_activity(report, after) if want != got]
    ['runs of kernels']
    """
    yield from compare_frame(report)
    processes = {row["pid"]: row for row in report["activity"]["processes"]}
    yield "processes", [after["pid"]], list(processes)
    process = processes[after["pid"]]
    yield "complete", True, process["complete"]
    runs = {row["mangled"]: row["launches"] + row["captured"] * after["graph_launches"] for row in after["kernels"]}
    yield differ("runs of kernels", runs.items(), ran(process).items())


def compare_modes(report):
    """Yields (what, by the calls, by CUPTI) for a program that all is asked of, and that launches
    no graphs and allocates through functions that CUPTI tells of.

    >>> kernel = dict(mangled="_Z1av", name="a()", launches=2)
    >>> one = dict(mangled="_Z1av", name="a()", count=2)
    >>> copy = dict(direction="H2D", calls=1, bytes=8)
    >>> process = dict(kernels=[one], copies=[dict(direction="H2D", count=1, bytes=8)],
    ...     memory=[dict(operation="allocation", kind="device", count=3, bytes=64)])
    >>> report = dict(cudatrace=dict(kernels=[kernel]), bandwidth_util=dict(directions=[copy]),
    ...     memleak=dict(calls=dict(cudaMalloc=3)), activity=dict(processes=[process]))
    >>> [what for what, want, got in compare_modes(report) if want != got]
    []
    >>> kernel["launches"], copy["bytes"] = 3, 9
    >>> [what for what, want, got in compare_modes(report) if want != got]
    ['kernels launched and run', 'copies and sets called for and done']
    """
    processes = report["activity"]["processes"]
    launched = Counter()
    for row in report["cudatrace"]["kernels"]:
        launched[row["mangled"] or row["name"]] += row["launches"]
    done = sum((ran(process) for process in processes), Counter())
    yield differ("kernels launched and run", (+launched).items(), done.items())
    called, done = {}, {}
    for row in report["bandwidth_util"]["directions"]:
        add(called, row["direction"], row["calls"], row["bytes"])
    for process in processes:
        for direction, (count, size) in copies_of(process).items():
            add(done, direction, count, size)
    yield "copies and sets called for and done", called, done
    calls = sum(report["memleak"]["calls"].values())
    told = sum(
        row["count"]
        for process in processes
        for row in process["memory"]
        if row["operation"] == "allocation" and row["kind"] in KINDS
    )
    yield "allocations", calls, told
