"""Expected contents of activity reports, and comparisons."""

from collections import Counter

from expect import compare_frame, differ

# Tolerances of a kernel's duration: by CUDA events around it, and by CUPTI.
TOLERANCE = 0.01

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


def kernels_of(process):
    """{name without its arguments: runs}.

    >>> rows = [dict(name="(anonymous namespace)::scale(float*, float, int)", count=3),
    ...     dict(name="void work::f<int>(int)", count=2), dict(name="plain", count=1)]
    >>> kernels_of(dict(kernels=rows))
    {'scale': 3, 'f<int>': 2, 'plain': 1}
    """
    counts = Counter()
    for row in process["kernels"]:
        name = row["name"].replace("(anonymous namespace)::", "")
        counts[name.partition("(")[0].rpartition("::")[2]] += row["count"]
    return dict(counts)


def memory_of(process, operation):
    """{kind: (count, bytes)} of the kinds that the program tracks."""
    sums = {}
    for row in process["memory"]:
        if row["operation"] == operation and row["kind"] in KINDS:
            add(sums, row["kind"], row["count"], row["bytes"])
    return sums


def pairs(truth):
    """The truth's sums as the functions above have them."""
    return {name: tuple(sum_) for name, sum_ in truth.items()}


def compare_activity(report, truth):
    """Yields (what, expected, got) for a program `activity`.

    >>> truth = dict(pid=7, kernels=dict(scale=[2, 0]), copies=dict(H2D=[1, 8]),
    ...     sets=dict(set=[1, 4]), allocations=dict(device=[1, 64]), frees=dict(device=[1, 64]))
    >>> process = dict(pid=7, complete=True, kernels=[dict(name="scale(int)", count=2)],
    ...     copies=[dict(direction="H2D", count=1, bytes=8), dict(direction="set", count=1, bytes=4)],
    ...     memory=[dict(operation="allocation", kind="device", count=1, bytes=64),
    ...     dict(operation="release", kind="device", count=1, bytes=64)])
    >>> report = dict(schema=2, lost={}, activity=dict(processes=[process]))
    >>> [what for what, want, got in compare_activity(report, truth) if want != got]
    []
    >>> process["kernels"][0]["count"], process["memory"][1]["bytes"] = 3, 63
    >>> [what for what, want, got in compare_activity(report, truth) if want != got]
    ['runs of kernels', 'frees']
    """
    yield from compare_frame(report)
    processes = {row["pid"]: row for row in report["activity"]["processes"]}
    yield "processes", [truth["pid"]], list(processes)
    process = processes[truth["pid"]]
    yield "complete", True, process["complete"]
    kernels = {name: count for name, (count, _) in truth["kernels"].items()}
    yield "runs of kernels", kernels, kernels_of(process)
    yield "copies and sets", pairs(truth["copies"] | truth["sets"]), copies_of(process)
    yield "allocations", pairs(truth["allocations"]), memory_of(process, "allocation")
    yield "frees", pairs(truth["frees"]), memory_of(process, "release")


def compare_modes(report):
    """Yields (what, by the calls, by CUPTI) for a program that all is asked of, and that launches
    no graphs and allocates through functions that CUPTI tells of.

    >>> kernel = dict(mangled="_Z1av", name="a()", launches=2)
    >>> ran = dict(mangled="_Z1av", name="a()", count=2)
    >>> copy = dict(direction="H2D", calls=1, bytes=8)
    >>> process = dict(kernels=[ran], copies=[dict(direction="H2D", count=1, bytes=8)],
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
    launched, ran = Counter(), Counter()
    for row in report["cudatrace"]["kernels"]:
        launched[row["mangled"] or row["name"]] += row["launches"]
    for row in (row for process in processes for row in process["kernels"]):
        ran[row["mangled"] or row["name"]] += row["count"]
    yield differ("kernels launched and run", (+launched).items(), (+ran).items())
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


def off_by_more(expected, found, part=TOLERANCE):
    """The pairs that differ by more than that part of what was expected.

    >>> off_by_more([100.0, 200.0], [100.9, 203.0])
    [(200.0, 203.0)]
    """
    together = zip(expected, found, strict=True)
    return [(e, f) for e, f in together if abs(f - e) > part * e]
