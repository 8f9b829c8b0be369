"""Expected contents of memory reports by kind. Nothing here runs a program.

The doctests are its tests: python3 -m doctest expect_kinds.py
"""

from expect import compare_frame

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


def sum_of(items, prefix):
    return {
        f"{prefix}_bytes": sum(item["bytes"] for item in items),
        f"{prefix}_allocations": len(items),
    }


def sums_of(items):
    """The three sums that are never mixed.

    >>> sums_of([{"kind": "pinned", "bytes": 5}, {"kind": "array", "bytes": 6}])["host_bytes"]
    5
    """
    host = [i for i in items if i["kind"] in HOST_KINDS]
    imported = [i for i in items if i["kind"] == "imported"]
    gpu = [i for i in items if i not in host and i not in imported]
    return sum_of(gpu, "live") | sum_of(host, "host") | sum_of(imported, "imported")


def compare_process(report, after, before=None):
    """Yields (what, expected, got) of one process. Variables are left out:
    which ones the runtime asks for besides the program is its own matter. Of
    one that ran before, the device need not be known where there are several.

    >>> live = [dict(serial=0, kind="device", bytes=5, device=0)]
    >>> said = dict(pid=7, live=live)
    >>> thread = dict(allocations=[dict(live[0], api="cudaMalloc")])
    >>> process = dict(pid=7, kinds=by_kind(live), devices=[dict(device=0, bytes=5)],
    ...     threads=[thread], **sums_of(live))
    >>> report = dict(memleak=dict(processes=[process]))
    >>> [what for what, want, got in compare_process(report, said) if want != got]
    []
    >>> process["kinds"]["vmm"] = dict(bytes=1, allocations=1)
    >>> [what for what, want, got in compare_process(report, said) if want != got]
    ['kinds of 7']
    >>> process["host_bytes"] = 1
    >>> said["live"] = []
    >>> [what for what, want, got in compare_process(report, said) if want != got]
    ['kinds of 7', 'sums of 7', 'kinds of 7, from the list', 'devices of 7']
    """
    pid = after["pid"]
    first = before["born"] if before else 0
    expected = [item for item in after["live"] if item["serial"] >= first]
    process = process_of(report, pid)
    kinds = {kind: total for kind, total in process.get("kinds", {}).items() if kind != "static"}
    listed = allocations_of(process)
    static = [a for a in listed if a["kind"] == "static"]
    yield f"kinds of {pid}", by_kind(expected), kinds
    sums = sums_of(expected + static)
    yield f"sums of {pid}", sums, {name: process.get(name, 0) for name in sums}
    others = [a for a in listed if a["kind"] != "static"]
    yield f"kinds of {pid}, from the list", by_kind(expected), by_kind(others)
    # A variable of unknown size has a device and no bytes.
    rows = [row for row in process.get("devices", []) if row["bytes"]]
    devices = {row["device"]: row["bytes"] for row in rows}
    if before and before.get("facts", {}).get("gpus", 1) > 1 and None in devices:
        devices[0] = devices.get(0, 0) + devices.pop(None)
    gpu_bytes = sums["live_bytes"]
    yield f"devices of {pid}", {0: gpu_bytes} if gpu_bytes else {}, devices
    computed = {a["kind"] for a in listed if a.get("computed")}
    yield f"computed kinds of {pid}", {"array"} & set(by_kind(expected)), computed


def compare_calls(report, afters, before=None):
    """Yields (what, expected, got) for the calls of all processes together;
    `before` is what the first of them said when tracing began.

    >>> memleak = dict(alloc_calls=2, free_calls=1, failed_calls=0, unknown_frees=1,
    ...     calls=dict(cudaMalloc=2))
    >>> before = dict(born=3, allocs=3, frees=1, failed=0, freed=[0])
    >>> after = dict(born=5, allocs=5, frees=2, failed=0, freed=[0, 2])
    >>> [(want, got) for _, want, got in compare_calls(dict(memleak=memleak), [after], before)]
    [(2, 2), (1, 1), (0, 0), (1, 1), (2, 2)]
    """
    memleak = report["memleak"]
    start = before or {"born": 0, "allocs": 0, "frees": 0, "failed": 0, "freed": []}
    for name, said in (("alloc_calls", "allocs"), ("free_calls", "frees"), ("failed_calls", "failed")):
        yield name, sum(after[said] for after in afters) - start[said], memleak[name]
    freed = afters[0]["freed"][len(start["freed"]) :]
    unknown = sum(serial < start["born"] for serial in freed)
    yield "unknown_frees", unknown, memleak["unknown_frees"]
    yield "sum of calls", memleak["alloc_calls"], sum(memleak["calls"].values())


def compare_kinds(report, afters, before=None):
    """Yields (what, expected, got) for programs of kinds.cu."""
    yield from compare_frame(report)
    for after in afters:
        yield from compare_process(report, after, before if after is afters[0] else None)
    yield from compare_calls(report, afters, before)


def compare_virtual(report, after):
    """Yields (what, expected, got) for mappings and address space."""
    process = process_of(report, after["pid"])
    facts = after["facts"]
    physical = [a for a in allocations_of(process) if a["kind"] == "vmm"]
    yield "mapped_bytes", facts["mapped bytes"], sum(a["mapped_bytes"] for a in physical)
    reserved = process.get("reserved_address_bytes")
    yield "reserved_address_bytes", facts["reserved address bytes"], reserved


MANAGED = "gp_shared"


def compare_variables(report, after):
    """Yields (what, expected, got) for variables that the program asked for.

    >>> variable = dict(kind="static", name="a", bytes=4)
    >>> process = dict(pid=7, threads=[dict(allocations=[variable])])
    >>> report = dict(memleak=dict(processes=[process]))
    >>> list(compare_variables(report, dict(pid=7, variables=dict(a=4, b=8))))
    [('variables', {'a': 4, 'b': 8}, {'a': 4})]
    """
    listed = allocations_of(process_of(report, after["pid"]))
    got = {a.get("name"): a["bytes"] for a in listed if a["kind"] == "static"}
    # The runtime does not query the sizes of managed variables.
    wanted = {
        name: 0 if name == MANAGED and got.get(name) == 0 else size
        for name, size in after["variables"].items()
    }
    yield "variables", wanted, {name: got[name] for name in wanted if name in got}


# Modules bring their managed variables with them, which compute-sanitizer counts
# as leaked, once for each of these.
LOADS = ("cuDevicePrimaryCtxRetain", "cuLibraryLoad", "cuModuleLoad")


def leaked_bytes(text):
    """The sum of what compute-sanitizer says was leaked by calls that allocate;
    None if it does not say.

    >>> leaked_bytes("========= Leaked 1,024 bytes at 0x7f\\n========= Leaked 8 bytes at 0x1")
    1032
    >>> leaked_bytes("=== Leaked 8 bytes at 0x7f\\n=== Host Frame: cuLibraryLoadData [0x1] in x")
    0
    >>> leaked_bytes("========= LEAK SUMMARY: 0 bytes leaked in 0 allocations")
    0
    """
    leaked = 0
    for block in text.split("Leaked ")[1:]:
        size, found, rest = block.partition(" bytes at ")
        frame = rest.partition("Host Frame: ")[2]
        if found and not frame.startswith(LOADS):
            leaked += int(size.replace(",", ""))
    return leaked if "Leaked " in text or "LEAK SUMMARY" in text else None


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
