"""The expected report of a stress program, from the program's last line."""

from collections import Counter

from expect import compare_sums, differ, reported_blocks

# Functions that the allocations of a backend are reported under. A CuPy with a static runtime is
# seen at the driver.
FUNCTIONS = {
    "torch": ("cudaMalloc",),
    "cupy": ("cudaMalloc", "cuMemAlloc_v2"),
    "runtime": ("cudaMalloc",),
}


def live_by_thread(blocks):
    """{(pid, tid, name): (blocks, bytes)}"""
    counts, sizes = Counter(), Counter()
    for block in blocks:
        thread = (block.pid, block.tid, block.thread)
        counts[thread] += 1
        sizes[thread] += block.size_bytes
    return {thread: (counts[thread], sizes[thread]) for thread in counts}


def compare_stress(report, said):
    """Yields (what, expected, got) for each thing that a report should say.

    Libraries may allocate besides, by other functions; what of that is not live
    has been freed, and is among the frees.

    >>> def thread(tid, *sizes):
    ...     blocks = [dict(address=hex(tid * 16 + n), bytes=size, device=0, api="cudaMalloc")
    ...         for n, size in enumerate(sizes)]
    ...     return dict(tid=tid, comm="t", live_bytes=sum(sizes), live_allocations=len(sizes),
    ...         allocations=blocks)
    >>> threads = [thread(8, 90, 10), thread(7, 10)]
    >>> process = dict(pid=7, live_bytes=110, live_allocations=3, threads=threads)
    >>> report = dict(schema=3, lost={}, memleak=dict(alloc_calls=6, free_calls=3,
    ...     failed_calls=0, live_bytes=110, live_allocations=3, unknown_frees=0,
    ...     calls=dict(cudaMalloc=5, cuMemAlloc_v2=1), processes=[process]))
    >>> rows = [dict(tid=8, name="t", live=2, live_bytes=100),
    ...     dict(tid=7, name="t", live=1, live_bytes=10), dict(tid=9, name="t", live=0)]
    >>> said = dict(backend="torch", allocs=5, frees=2, failed=0, live=3, live_bytes=110,
    ...     processes=[dict(pid=7, threads=rows)], anomaly=dict(tid=8, bytes=90))
    >>> [what for what, want, got in compare_stress(report, said) if want != got]
    []
    >>> said["allocs"], said["anomaly"]["bytes"], rows[1]["live_bytes"] = 6, 91, 11
    >>> [what for what, want, got in compare_stress(report, said) if want != got]
    ['allocations', 'live by thread', 'the largest thread and its largest block']
    """
    yield from compare_sums(report)
    memleak = report["memleak"]
    functions = FUNCTIONS[said["backend"]]
    blocks = reported_blocks(report)
    ours = [block for block in blocks if block.api in functions]
    calls = sum(memleak["calls"].get(function, 0) for function in functions)
    freed_by_others = sum(memleak["calls"].values()) - calls - (len(blocks) - len(ours))
    yield "allocations", said["allocs"], calls
    yield "frees", said["frees"], memleak["free_calls"] - freed_by_others
    yield "failed calls", said["failed"], memleak["failed_calls"]
    yield "unknown_frees", 0, memleak["unknown_frees"]
    yield "live", said["live"], len(ours)
    yield "live bytes", said["live_bytes"], sum(block.size_bytes for block in ours)
    expected = {
        (process["pid"], thread["tid"], thread["name"]): (thread["live"], thread["live_bytes"])
        for process in said["processes"]
        for thread in process["threads"]
        if thread["live"]
    }
    yield differ("live by thread", expected.items(), live_by_thread(ours).items())
    if "anomaly" in said:
        threads = memleak["processes"][0]["threads"] if blocks else []
        top = threads[0] if threads else {"tid": None, "allocations": [{"bytes": None}]}
        got = {"tid": top["tid"], "bytes": top["allocations"][0]["bytes"]}
        yield "the largest thread and its largest block", said["anomaly"], got
