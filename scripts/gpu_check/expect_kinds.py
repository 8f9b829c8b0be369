"""Expected contents of memory reports by kind. Nothing here runs a program.

The doctests are its tests: python3 -m doctest expect_kinds.py
"""

HOST_KINDS = ("pinned", "registered")
MIB = 1 << 20


def process_of(report, pid):
    """The process's entry in a report; empty if it has none."""
    return next((p for p in report["memleak"]["processes"] if p["pid"] == pid), {})


def kind_bytes(report, pid, *kinds):
    """Live bytes of a process, of some kinds.

    >>> kind_bytes({"memleak": {"processes": [{"pid": 7, "kinds": {"vmm": {"bytes": 5}}}]}}, 7, "vmm")
    5
    """
    known = process_of(report, pid).get("kinds", {})
    return sum(known[kind]["bytes"] for kind in kinds if kind in known)


def allocations_of(process):
    return [a for thread in process.get("threads", []) for a in thread["allocations"]]


def by_kind(items):
    """{kind: bytes and allocations}, as reports have it.

    >>> by_kind([{"kind": "vmm", "bytes": 5}, {"kind": "vmm", "bytes": 6}])
    {'vmm': {'bytes': 11, 'allocations': 2}}
    """
    kinds = {}
    for item in items:
        total = kinds.setdefault(item["kind"], {"bytes": 0, "allocations": 0})
        total["bytes"] += item["bytes"]
        total["allocations"] += 1
    return kinds


def live_kinds(status, old=None):
    """The same of the workload's status, without the memory that was live before tracing.

    Variables are left out: which ones the runtime asks for besides the program is its own matter.

    >>> live_kinds(dict(live=3, vmm_live=3, vmm_bytes=9, static_live=1), dict(vmm_live=1, vmm_bytes=4))
    {'vmm': {'bytes': 5, 'allocations': 2}}
    """
    kinds = {}
    for name, live in status.items():
        kind, word, _ = name.partition("_live")
        live -= (old or {}).get(name, 0)
        if word and kind != "static" and live:
            size = status[f"{kind}_bytes"] - (old or {}).get(f"{kind}_bytes", 0)
            kinds[kind] = {"bytes": size, "allocations": live}
    return kinds


def sums_of(kinds):
    """The three sums that are never mixed.

    >>> sums_of(dict(pinned=dict(bytes=5, allocations=1), array=dict(bytes=6, allocations=2)))
    ... # doctest: +NORMALIZE_WHITESPACE
    {'live_bytes': 6, 'live_allocations': 2, 'host_bytes': 5, 'host_allocations': 1,
     'imported_bytes': 0, 'imported_allocations': 0}
    """
    names = [f"{sum_}_{unit}" for sum_ in ("live", "host", "imported") for unit in ("bytes", "allocations")]
    sums = dict.fromkeys(names, 0)
    for kind, total in kinds.items():
        name = "host" if kind in HOST_KINDS else "imported" if kind == "imported" else "live"
        for unit, number in total.items():
            sums[f"{name}_{unit}"] += number
    return sums


def compare_process(report, pid, status, old=None):
    """Yields (what, expected, got) of one workload. `old` is what was live when tracing began and
    still is, of a process that ran before: then the device need not be known.

    >>> status = dict(device_live=1, device_bytes=5)
    >>> thread = dict(allocations=[dict(kind="device", bytes=5, device=0)])
    >>> process = dict(pid=7, kinds=by_kind(thread["allocations"]), devices=[dict(device=0, bytes=5)],
    ...     threads=[thread], live_bytes=5, live_allocations=1)
    >>> report = dict(memleak=dict(processes=[process]))
    >>> [what for what, want, got in compare_process(report, 7, status) if want != got]
    []
    >>> process["kinds"]["vmm"] = dict(bytes=1, allocations=1)
    >>> [what for what, want, got in compare_process(report, 7, status) if want != got]
    ['kinds of 7']
    >>> process["host_bytes"], status = 1, dict(device_live=0)
    >>> [what for what, want, got in compare_process(report, 7, status) if want != got]
    ['kinds of 7', 'sums of 7', 'kinds of 7, from the list', 'devices of 7']
    """
    expected = live_kinds(status, old)
    process = process_of(report, pid)
    kinds = {kind: total for kind, total in process.get("kinds", {}).items() if kind != "static"}
    listed = allocations_of(process)
    yield f"kinds of {pid}", expected, kinds
    static = by_kind(a for a in listed if a["kind"] == "static")
    sums = sums_of(expected | static)
    yield f"sums of {pid}", sums, {name: process.get(name, 0) for name in sums}
    yield f"kinds of {pid}, from the list", expected, by_kind(a for a in listed if a["kind"] != "static")
    # A variable of unknown size has a device and no bytes.
    devices = {row["device"]: row["bytes"] for row in process.get("devices", []) if row["bytes"]}
    if old is not None and None in devices:
        devices[0] = devices.get(0, 0) + devices.pop(None)
    yield f"devices of {pid}", {0: sums["live_bytes"]} if sums["live_bytes"] else {}, devices
    computed = {a["kind"] for a in listed if a.get("computed")}
    yield f"computed kinds of {pid}", {"array"} & set(expected), computed


def compare_calls(report, statuses, before=None, unknown_frees=0):
    """Yields (what, expected, got) for the calls of all workloads together; `before` is the first
    one's status when tracing began.

    >>> memleak = dict(alloc_calls=2, free_calls=1, failed_calls=0, unknown_frees=1,
    ...     calls=dict(cudaMalloc=2))
    >>> before, after = dict(allocs=3, frees=1, failed=0), dict(allocs=5, frees=2, failed=0)
    >>> [(want, got) for _, want, got in compare_calls(dict(memleak=memleak), [after], before, 1)]
    [(2, 2), (1, 1), (0, 0), (1, 1), (2, 2)]
    """
    memleak = report["memleak"]
    for name, said in (("alloc_calls", "allocs"), ("free_calls", "frees"), ("failed_calls", "failed")):
        start = before[said] if before else 0
        yield name, sum(status[said] for status in statuses) - start, memleak[name]
    yield "unknown_frees", unknown_frees, memleak["unknown_frees"]
    yield "sum of calls", memleak["alloc_calls"], sum(memleak["calls"].values())


def compare_virtual(report, pid, mapped, reserved):
    """Yields (what, expected, got) for mappings and address space."""
    process = process_of(report, pid)
    physical = [a for a in allocations_of(process) if a["kind"] == "vmm"]
    yield "mapped_bytes", mapped, sum(a["mapped_bytes"] for a in physical)
    yield "reserved_address_bytes", reserved, process.get("reserved_address_bytes")


def compare_variables(report, pid, variables, managed):
    """Yields (what, expected, got) for variables that the program asked for.

    >>> variable = dict(kind="static", name="a", bytes=4)
    >>> process = dict(pid=7, threads=[dict(allocations=[variable])])
    >>> report = dict(memleak=dict(processes=[process]))
    >>> list(compare_variables(report, 7, dict(a=4, b=8), "c"))
    [('variables', {'a': 4, 'b': 8}, {'a': 4})]
    """
    listed = allocations_of(process_of(report, pid))
    got = {a.get("name"): a["bytes"] for a in listed if a["kind"] == "static"}
    # The runtime does not query the sizes of managed variables.
    wanted = {
        name: 0 if name == managed and got.get(name) == 0 else size for name, size in variables.items()
    }
    yield "variables", wanted, {name: got[name] for name in wanted if name in got}


def compare_nvml(process):
    """Yields (what, expected, got) for the line that adds up. Of managed memory
    nobody knows how much is at the GPU: it is no part of what is tracked.

    >>> nvml = dict(used_bytes=9, tracked_bytes=5, other_bytes=4, context_bytes=None)
    >>> [what for what, want, got in compare_nvml(dict(live_bytes=5, nvml=nvml)) if want != got]
    []
    """
    nvml = process["nvml"]
    total = nvml["tracked_bytes"] + nvml["other_bytes"]
    yield "tracked + other = used", nvml["used_bytes"], total
    managed = process.get("kinds", {}).get("managed", {"bytes": 0})["bytes"]
    yield "tracked = live", process["live_bytes"] - managed, nvml["tracked_bytes"]
