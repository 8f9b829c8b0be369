"""Expected contents of launch reports, and comparisons."""

from dataclasses import dataclass

from expect import compare_frame, differ


@dataclass(frozen=True)
class Kernel:
    """A kernel of a process, and its launches."""

    mangled: str | None
    name: str
    launches: int
    captured: int
    grid: tuple
    block: tuple

    def __str__(self):
        return (
            f"{self.name} ({self.mangled}) x {self.launches} + {self.captured} captured,"
            f" grid {self.grid} block {self.block}"
        )


def launched(after, before=None):
    """The launches of `launch` between two of its lines: kernels, and calls by function.

    >>> one = dict(mangled="_Z1av", name="a()", function="f", launches=3, captured=1,
    ...     grid=[1, 2, 3], block=[4, 5, 6])
    >>> after = dict(kernels=[dict(one, launches=5)])
    >>> kernels, calls = launched(after, dict(kernels=[one]))
    >>> print(*kernels, calls)
    a() (_Z1av) x 2 + 0 captured, grid (1, 2, 3) block (4, 5, 6) {'f': 2}
    >>> launched(after, after)
    (set(), {})
    """
    start = {row["mangled"]: row for row in (before or {"kernels": []})["kernels"]}
    kernels, calls = set(), {}
    for row in after["kernels"]:
        old = start.get(row["mangled"], {"launches": 0, "captured": 0})
        launches = row["launches"] - old["launches"]
        captured = row["captured"] - old["captured"]
        if launches or captured:
            shape = tuple(row["grid"]), tuple(row["block"])
            kernels.add(Kernel(row["mangled"], row["name"], launches, captured, *shape))
        if launches:
            calls[row["function"]] = calls.get(row["function"], 0) + launches
    return kernels, calls


def reported_kernels(report):
    """The kernels of a report, as a list: one listed twice is a fault."""
    return [
        Kernel(
            row["mangled"],
            row["name"],
            row["launches"],
            row["captured_launches"],
            tuple(row["grid"]),
            tuple(row["block"]),
        )
        for row in report["cudatrace"]["kernels"]
    ]


def launches_by_name(report, pid=None):
    """{mangled name: launches that ran}, of one process or of all; the name as
    it is shown where there is no mangled one.

    >>> rows = [dict(pid=7, mangled="_Z1av", name="a()", launches=2),
    ...     dict(pid=8, mangled=None, name="0x10", launches=1),
    ...     dict(pid=7, mangled="_Z1bv", name="b()", launches=0)]
    >>> report = dict(cudatrace=dict(kernels=rows))
    >>> launches_by_name(report), launches_by_name(report, 7)
    ({'_Z1av': 2, '0x10': 1}, {'_Z1av': 2})
    """
    counts = {}
    for row in report["cudatrace"]["kernels"]:
        if row["launches"] and pid in (None, row["pid"]):
            name = row["mangled"] or row["name"]
            counts[name] = counts.get(name, 0) + row["launches"]
    return counts


def compare_launch_sums(report):
    """(what, expected, got) for the invariants of launch reports."""
    trace = report["cudatrace"]
    kernels = trace["kernels"]
    sums = {
        "launches": sum(row["launches"] for row in kernels),
        "captured_launches": sum(row["captured_launches"] for row in kernels),
        "graph_launches": sum(row["launches"] for row in trace["graphs"]),
    }
    yield from compare_frame(report)
    yield "sums", sums, {name: trace[name] for name in sums}
    yield "sum of calls", trace["launches"], sum(trace["calls"].values())
    yield "kernels without a name", [], [row["name"] for row in kernels if not row["mangled"]]


def compare_launches(report, after, before=None, by_function=True):
    """Yields (what, expected, got) for a program `launch`.

    by_function: the functions that it calls are those that are traced. (Which
    function of the driver the runtime calls for one of its own is NVIDIA's matter.)

    >>> one = dict(mangled="_Z1av", name="a()", function="f", launches=3, captured=1,
    ...     grid=[1, 2, 3], block=[4, 5, 6])
    >>> after = dict(pid=7, graph_launches=2, graphs=1, kernels=[one])
    >>> row = dict(pid=7, mangled="_Z1av", name="a()", launches=3, captured_launches=1,
    ...     grid=[1, 2, 3], block=[4, 5, 6])
    >>> trace = dict(launches=3, captured_launches=1, graph_launches=2, calls=dict(f=3),
    ...     kernels=[row], graphs=[dict(pid=7, graphs=1, launches=2)])
    >>> report = dict(schema=3, lost=dict(launches=0), cudatrace=trace)
    >>> [what for what, want, got in compare_launches(report, after) if want != got]
    []
    >>> row["launches"], trace["calls"] = 4, dict(g=3)
    >>> [what for what, want, got in compare_launches(report, after) if want != got]
    ['sums', 'kernels', 'calls']
    """
    yield from compare_launch_sums(report)
    start = before or {"graph_launches": 0, "graphs": 0, "kernels": []}
    trace = report["cudatrace"]
    kernels, calls = launched(after, before)
    yield "launches", sum(calls.values()), trace["launches"]
    yield "captured_launches", sum(k.captured for k in kernels), trace["captured_launches"]
    yield differ("kernels", kernels, reported_kernels(report))
    if by_function:
        yield "calls", calls, {name: count for name, count in trace["calls"].items() if count}
    graph_launches = after["graph_launches"] - start["graph_launches"]
    yield "graph_launches", graph_launches, trace["graph_launches"]
    graphs = {(after["pid"], after["graphs"] - start["graphs"], graph_launches)}
    yield differ(
        "graphs (pid, graphs, launches)",
        graphs if graph_launches else set(),
        [(row["pid"], row["graphs"], row["launches"]) for row in trace["graphs"]],
    )


def compare_cupti(report, outputs):
    """Yields (what, expected, got) for `outputs` of the CUPTI collector, by pid.

    Its records are of kernels that ran: what graphs launched is not for us.

    >>> kernels = [dict(name="_Z1av", runs=2, graph_runs=0), dict(name="_Z1bv", runs=0,
    ...     graph_runs=9)]
    >>> row = dict(pid=7, mangled="_Z1av", name="a()", launches=2)
    >>> report = dict(cudatrace=dict(kernels=[row], graph_launches=3))
    >>> outputs = {7: dict(records=11, dropped=0, kernels=kernels)}
    >>> [what for what, want, got in compare_cupti(report, outputs) if want != got]
    []
    >>> row["launches"], report["cudatrace"]["graph_launches"] = 3, 0
    >>> [what for what, want, got in compare_cupti(report, outputs) if want != got]
    ['kernels that CUPTI saw (pid, name, launches)', 'graphs were launched']
    """
    pids = {row["pid"] for row in report["cudatrace"]["kernels"]}
    yield "records that CUPTI dropped", 0, sum(output["dropped"] for output in outputs.values())
    yield differ(
        "kernels that CUPTI saw (pid, name, launches)",
        [
            (pid, kernel["name"], kernel["runs"])
            for pid, output in outputs.items()
            for kernel in output["kernels"]
            if kernel["runs"]
        ],
        [
            (pid, name, launches)
            for pid in sorted(pids)
            for name, launches in launches_by_name(report, pid).items()
        ],
    )
    from_graphs = sum(k["graph_runs"] for output in outputs.values() for k in output["kernels"])
    yield "graphs were launched", from_graphs > 0, report["cudatrace"]["graph_launches"] > 0


def not_multiples(counts, number):
    """The names whose count is not a multiple of `number`.

    >>> not_multiples({"a": 20, "b": 21}, 10)
    {'b': 21}
    """
    return {name: count for name, count in counts.items() if count % number}
