"""Expected contents of copy reports, and comparisons."""

from expect import compare_frame, differ

# A synchronous copy to the device of no more than this may return when its bytes are staged: it has
# no throughput.
STAGED_BYTES = 64 * 1024

THROUGHPUTS = ("seconds", "bytes_per_second", "peak_bytes_per_second")


def mode_of(direction, call, size):
    """The expected mode of a call in a report.

    >>> mode_of("H2D", "sync", 65537), mode_of("H2D", "sync", 65536), mode_of("D2H", "sync", 1)
    ('sync', 'async', 'sync')
    >>> mode_of("D2H", "async", 1 << 20), mode_of("D2D", "sync", 1 << 20), mode_of("set", "sync", 9)
    ('async', 'async', 'async')
    """
    timed = direction == "D2H" or (direction == "H2D" and size > STAGED_BYTES)
    return "sync" if call == "sync" and timed else "async"


def moved(after, before=None):
    """{(direction, mode): {size: calls}} of the copies between two lines of `copy`.

    >>> old = dict(direction="H2D", call="async", size=8, calls=2)
    >>> new = dict(direction="H2D", call="sync", size=4, calls=1)
    >>> moved(dict(moves=[dict(old, calls=5), new]), dict(moves=[old]))
    {('H2D', 'async'): {8: 3, 4: 1}}
    """
    start = {
        (row["direction"], row["call"], row["size"]): row["calls"]
        for row in (before or {"moves": []})["moves"]
    }
    found = {}
    for row in after["moves"]:
        key = row["direction"], row["call"], row["size"]
        calls = row["calls"] - start.get(key, 0)
        if calls:
            sizes = found.setdefault((row["direction"], mode_of(*key)), {})
            sizes[row["size"]] = sizes.get(row["size"], 0) + calls
    return found


def histogram(sizes):
    """As reports have it: (bytes, calls) for calls of less than `bytes` and at least half.

    >>> histogram({1: 2, 1023: 1, 1024: 3, 1025: 1})
    ((2, 2), (1024, 1), (2048, 4))
    """
    slots = {}
    for size, calls in sizes.items():
        slot = 1 << size.bit_length()
        slots[slot] = slots.get(slot, 0) + calls
    return tuple(sorted(slots.items()))


def row_at(report, direction, mode="sync"):
    """The only row of that kind, None if there is none."""
    rows = [
        row
        for row in report["bandwidth_util"]["directions"]
        if (row["direction"], row["mode"]) == (direction, mode)
    ]
    return rows[0] if len(rows) == 1 else None


def compare_throughputs(report):
    """(what, expected, got): a throughput exactly where copies have a duration."""
    rows = report["bandwidth_util"]["directions"]
    yield (
        "throughputs of what has none",
        [],
        [
            (row["direction"], row["mode"], name)
            for row in rows
            for name in (*THROUGHPUTS, "now_bytes_per_second", "link_utilisation")
            if row["mode"] != "sync" and row[name] is not None
        ],
    )
    yield (
        "throughputs that are missing",
        [],
        [
            (row["direction"], row["mode"], name)
            for row in rows
            for name in THROUGHPUTS
            if row["mode"] == "sync" and not row[name]
        ],
    )


def compare_copies(report, after, before=None):
    """Yields (what, expected, got) for a program `copy`.

    >>> after = dict(pid=7, captured=1, moves=[
    ...     dict(direction="D2H", call="sync", size=8, calls=2),
    ...     dict(direction="set", call="sync", size=4, calls=1)])
    >>> empty = dict(seconds=None, bytes_per_second=None, peak_bytes_per_second=None,
    ...     now_bytes_per_second=None, link_utilisation=None)
    >>> down = dict(empty, pid=7, direction="D2H", mode="sync", calls=2, bytes=16, seconds=1.0,
    ...     bytes_per_second=16.0, peak_bytes_per_second=16.0, sizes=[[16, 2]])
    >>> sets = dict(empty, pid=7, direction="set", mode="async", calls=1, bytes=4, sizes=[[8, 1]])
    >>> report = dict(schema=3, lost={}, bandwidth_util=dict(copies=2, sets=1, failed_calls=0,
    ...     captured=1, directions=[down, sets]))
    >>> [what for what, want, got in compare_copies(report, after) if want != got]
    []
    >>> sets["bytes_per_second"], down["seconds"], down["bytes"] = 4.0, None, 17
    >>> [what for what, want, got in compare_copies(report, after) if want != got]
    ... # doctest: +NORMALIZE_WHITESPACE
    ['throughputs of what has none', 'throughputs that are missing',
     'pid, direction, mode, calls, bytes, sizes']
    """
    yield from compare_frame(report)
    yield from compare_throughputs(report)
    util = report["bandwidth_util"]
    expected = moved(after, before)
    yield differ(
        "pid, direction, mode, calls, bytes, sizes",
        [
            (
                *(after["pid"], direction, mode, sum(sizes.values())),
                sum(size * calls for size, calls in sizes.items()),
                histogram(sizes),
            )
            for (direction, mode), sizes in expected.items()
        ],
        [
            (
                *(row["pid"], row["direction"], row["mode"], row["calls"], row["bytes"]),
                tuple(tuple(slot) for slot in row["sizes"]),
            )
            for row in util["directions"]
        ],
    )
    calls = {key: sum(sizes.values()) for key, sizes in expected.items()}
    sets = sum(count for (direction, _), count in calls.items() if direction == "set")
    yield "copies", sum(calls.values()) - sets, util["copies"]
    yield "sets", sets, util["sets"]
    yield "failed_calls", 0, util["failed_calls"]
    captured = (before or {"captured": 0})["captured"]
    yield "captured", after["captured"] - captured, util["captured"]
