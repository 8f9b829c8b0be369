"""Expected contents of a report, and comparisons. Nothing here runs a program.

This file: memory, and what the others share. The doctests of expect*.py are
their tests: python3 -m doctest expect.py
"""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Block:
    """A live block. `device` is None where gpuprobe did not know it."""

    pid: int
    tid: int
    thread: str
    address: int
    size_bytes: int
    device: int | None
    api: str

    def __str__(self):
        return (
            f"{self.address:#x} {self.size_bytes} B {self.api} on gpu {self.device}"
            f" by {self.thread}:{self.tid} of {self.pid}"
        )


@dataclass
class Expected:
    """The expected report of the calls made while gpuprobe was attached."""

    calls: dict = field(default_factory=dict)
    free_calls: int = 0
    failed_calls: int = 0
    unknown_frees: int = 0
    blocks: set = field(default_factory=set)
    exited: dict = field(default_factory=dict)  # pid -> bool

    def __add__(self, other):
        names = self.calls.keys() | other.calls.keys()
        return Expected(
            {name: self.calls.get(name, 0) + other.calls.get(name, 0) for name in names},
            self.free_calls + other.free_calls,
            self.failed_calls + other.failed_calls,
            self.unknown_frees + other.unknown_frees,
            self.blocks | other.blocks,
            self.exited | other.exited,
        )


def reported_blocks(report):
    """The live blocks of a report, as a list: one listed twice is a fault."""
    return [
        Block(
            process["pid"],
            thread["tid"],
            thread["comm"],
            int(allocation["address"], 16),
            allocation["bytes"],
            allocation["device"],
            allocation["api"],
        )
        for process in report["memleak"]["processes"]
        for thread in process["threads"]
        for allocation in thread["allocations"]
    ]


def differ(what, expected, got):
    """(what, expected, got) of two collections: their sizes if they are alike,
    otherwise a few of the members that each alone has.

    >>> differ("letters", {"a", "b"}, ["b", "a"]), differ("letters", {"a", "b"}, ["b", "c", "d"])
    (('letters', 2, 2), ('letters', '[a]', '[c; d]'))
    """

    def some(members):
        shown = sorted(str(member) for member in members)
        return "[" + "; ".join(shown[:2] + [f"and {len(shown) - 2} more"] * (len(shown) > 2)) + "]"

    missing, surplus = set(expected) - set(got), set(got) - set(expected)
    if missing or surplus:
        return what, some(missing), some(surplus)
    return what, len(expected), len(got)


def losses(report):
    """What was lost, by name."""
    return {name: count for name, count in report["lost"].items() if count}


def compare_frame(report):
    """(what, expected, got) for the invariants of every report."""
    yield "schema", 3, report["schema"]
    yield "lost", {}, losses(report)


def compare_sums(report):
    """(what, expected, got) for the invariants of memory reports."""
    memleak = report["memleak"]
    processes = memleak["processes"]
    threads = [thread for process in processes for thread in process["threads"]]
    sums = {"calls": (memleak["alloc_calls"], sum(memleak["calls"].values()))}
    for unit in ("live_bytes", "live_allocations"):
        sums[f"processes' {unit}"] = (memleak[unit], sum(row[unit] for row in processes))
        sums[f"threads' {unit}"] = (memleak[unit], sum(row[unit] for row in threads))
    live = [memleak.get(f"{name}_allocations", 0) for name in ("live", "host", "imported")]
    sums["blocks"] = (sum(live), len(set(reported_blocks(report))))
    yield from compare_frame(report)
    yield "sums that differ", {}, {name: pair for name, pair in sums.items() if pair[0] != pair[1]}


def compare(report, expected, unknown_device=False, any_api=False):
    """Yields (what, expected, got) for each thing that a report should say.

    unknown_device: a device that gpuprobe did not know is no fault, a wrong
    one is. any_api: a block and a call may go by the name of either layer.

    >>> thread = dict(tid=7, comm="t", live_bytes=8, live_allocations=1, allocations=[
    ...     dict(address="0x20", bytes=8, device=None, api="cudaMalloc")])
    >>> process = dict(pid=7, exited=False, live_bytes=8, live_allocations=1, threads=[thread])
    >>> report = dict(schema=3, lost=dict(memory=0), memleak=dict(
    ...     alloc_calls=2, free_calls=2, failed_calls=1, unknown_frees=1, live_bytes=8,
    ...     live_allocations=1, calls=dict(cudaMalloc=2), processes=[process]))
    >>> expected = Expected(dict(cudaMalloc=2), 2, 1, 1,
    ...     {Block(7, 7, "t", 32, 8, 0, "cudaMalloc")}, {7: False})
    >>> [what for what, want, got in compare(report, expected) if want != got]
    ['blocks']
    >>> [what for what, want, got in compare(report, expected, unknown_device=True) if want != got]
    []
    >>> report["lost"]["memory"] = 3
    >>> process["exited"] = True
    >>> expected.free_calls = 9
    >>> [what for what, want, got in compare(report, expected, True) if want != got]
    ['lost', 'free_calls', 'exited']
    """
    yield from compare_sums(report)
    memleak = report["memleak"]
    calls = {name: count for name, count in memleak["calls"].items() if count}
    want_calls = expected.calls
    if any_api:
        calls, want_calls = sum(calls.values()), sum(want_calls.values())
    yield "calls", want_calls, calls
    yield "alloc_calls", sum(expected.calls.values()), memleak["alloc_calls"]
    for name in ("free_calls", "failed_calls", "unknown_frees"):
        yield name, getattr(expected, name), memleak[name]
    yield "live_bytes", sum(b.size_bytes for b in expected.blocks), memleak["live_bytes"]
    yield "live_allocations", len(expected.blocks), memleak["live_allocations"]

    got = reported_blocks(report)
    wanted_at = {(block.pid, block.address): block for block in expected.blocks}
    for index, block in enumerate(got):
        wanted = wanted_at.get((block.pid, block.address), block)
        if unknown_device and block.device is None:
            got[index] = block = replace(block, device=wanted.device)
        if any_api:
            got[index] = replace(block, api=wanted.api)
    yield differ("blocks", expected.blocks, got)

    exited = {process["pid"]: process["exited"] for process in memleak["processes"]}
    with_blocks = {block.pid for block in expected.blocks}
    yield (
        "exited",
        {pid: exit for pid, exit in expected.exited.items() if pid in with_blocks},
        {pid: exit for pid, exit in exited.items() if pid in with_blocks},
    )


def total_of(truth, name):
    """A statistic of torch_tensors.py, of all devices together.

    >>> total_of(dict(devices=[dict(reserved=1), dict(reserved=2)]), "reserved"), total_of({}, "x")
    (3, 0)
    """
    return sum(device[name] for device in truth.get("devices", []))


def compare_torch(report, after, before=None):
    """Yields (what, expected, got) for PyTorch's caching allocator, by two lines of torch_tensors.py.

    Its segments are the process's cudaMalloc calls. Libraries with a static
    runtime of their own allocate besides; those calls go by the driver's name.

    >>> thread = dict(tid=7, comm="t", live_bytes=12, live_allocations=2, allocations=[
    ...     dict(address="0x20", bytes=8, device=0, api="cudaMalloc"),
    ...     dict(address="0x90", bytes=4, device=0, api="cuMemAlloc_v2")])
    >>> process = dict(pid=7, exited=False, live_bytes=12, live_allocations=2, threads=[thread])
    >>> report = dict(schema=3, lost={}, memleak=dict(
    ...     alloc_calls=3, free_calls=1, failed_calls=0, unknown_frees=1, live_bytes=12,
    ...     live_allocations=2, calls=dict(cudaMalloc=2, cuMemAlloc_v2=1), processes=[process]))
    >>> old, new = dict(address=16, total_size=4), dict(address=32, total_size=8)
    >>> before = dict(devices=[dict(device=0, segments_allocated=1, reserved=4, segments=[old])])
    >>> device = dict(device=0, segments_allocated=3, reserved=8, segments=[new], retries=0)
    >>> after = dict(devices=[device])
    >>> [what for what, want, got in compare_torch(report, after, before) if want != got]
    []
    >>> device["segments_allocated"], device["reserved"] = 4, 10
    >>> [what for what, want, got in compare_torch(report, after, before) if want != got]
    ['cudaMalloc calls', 'bytes of cudaMalloc = memory_reserved']
    """

    def segments(truth):
        return {
            (segment["address"], segment["total_size"], device["device"])
            for device in truth.get("devices", [])
            for segment in device["segments"]
        }

    yield from compare_sums(report)
    memleak = report["memleak"]
    start = before or {}
    old = segments(start)
    kept = old & segments(after)
    got = {
        (block.address, block.size_bytes, block.device)
        for block in reported_blocks(report)
        if block.api == "cudaMalloc"
    }
    yield (
        "cudaMalloc calls",
        total_of(after, "segments_allocated") - total_of(start, "segments_allocated"),
        memleak["calls"].get("cudaMalloc", 0),
    )
    yield (
        "bytes of cudaMalloc = memory_reserved",
        total_of(after, "reserved") - sum(size for _, size, _ in kept),
        sum(size for _, size, _ in got),
    )
    yield differ("segments (address, bytes, device)", segments(after) - kept, got)
    yield "unknown_frees", len(old) - len(kept), memleak["unknown_frees"]
    yield "num_alloc_retries", 0, total_of(after, "retries")
