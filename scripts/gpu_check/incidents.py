"""Checks of out-of-memory incidents: PyTorch's own numbers, and the other holders."""

import re

from children import SLOW_SECONDS

GIB = 1 << 30
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": GIB}


def amount_after(words, text):
    """Bytes that PyTorch's message has after these words; none if it does not have them.

    >>> text = "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.50 MiB is free."
    >>> amount_after("Tried to allocate", text) // GIB, amount_after("of which", text)
    (2, 1572864)
    >>> amount_after("reserved by", text)
    """
    found = re.search(re.escape(words) + r" ([0-9.]+) (bytes|KiB|MiB|GiB)", text)
    return round(float(found[1]) * UNITS[found[2]]) if found else None


def is_near(said, number):
    """Whether a number is what was said in two decimals of a GiB.

    >>> is_near(2 * GIB, 2 * GIB + 5_000_000), is_near(2 * GIB, 3 * GIB)
    (True, False)
    """
    return said is not None and number is not None and abs(said - number) <= GIB // 100


def compare(bench, incident, oom):
    """Compares an incident with PyTorch's message."""
    text, pytorch = oom["text"], incident.get("pytorch", {})
    bench.equal("requested", oom["requested"], pytorch.get("gave_up_on_bytes"))
    bench.equal("allocated", oom["allocated"], pytorch.get("allocated_bytes"))
    bench.equal("reserved", oom["reserved"], pytorch.get("reserved_bytes"))
    held = {one["owner"]: one["bytes"] for one in incident["owners"]}
    bench.equal("held by PyTorch", oom["reserved"], held.get("libtorch"))
    bench.equal("its words", True, is_near(amount_after("Tried to allocate", text), oom["requested"]))
    lines = [(frame["file"], frame["line"]) for frame in incident["stack"] if frame["language"] == "python"]
    bench.equal("the line", True, (oom["file"], oom["line"]) in lines)
    gpu = incident.get("gpu") or {}
    # CUDA keeps some of the memory that NVML counts, and calls it free.
    total = (amount_after("total capacity of", text), gpu.get("total_bytes"))
    bench.equal("the capacity, about", True, None not in total and 0 <= total[1] - total[0] < GIB)
    free = (amount_after("of which", text), gpu.get("free_bytes"))
    bench.equal("free, about", True, None not in free and abs(free[0] - free[1]) < GIB)
    bench.figure(
        bench.label,
        f"{incident['attempts']} calls failed, {oom['retries']} retries of PyTorch's; free {free[0]} as PyTorch"
        f" says, {free[1]} as NVML does; outcome {incident['outcome']} after {incident['outcome_seconds']} s",
    )


def check_out_of_memory(bench, *steps):
    """The GPU is filled until PyTorch gives up; the program catches that and goes on."""
    if bench.is_missing("torch"):
        return
    command = bench.torch(*steps, "fill", "wait")
    tracer = bench.trace("--on-oom", "true", "--", *command)
    after = tracer.truth("wait", 1, SLOW_SECONDS)
    tracer.go()
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    _, report = tracer.finish()
    incidents = [one for one in report.get("incidents", []) if one["outcome"] != "retried"]
    bench.equal("incidents", after["oom"]["ooms"], len(incidents))
    compare(bench, incidents[0], after["oom"])
    bench.equal("outcome", "continued", incidents[0]["outcome"])
    bench.equal("others", [], [one["pid"] for one in incidents[0]["others"] if (one["used_bytes"] or 0) > GIB])


def check_out_of_memory_beside(bench):
    """Another, untraced process holds most of the GPU."""
    if bench.is_missing("torch"):
        return
    holder = bench.start(*bench.torch("hold=75", "wait"))
    held = holder.truth("wait", 1, SLOW_SECONDS)["devices"][0]["reserved"]
    tracer = bench.trace("--", *bench.torch("fill", "wait"))
    after = tracer.truth("wait", 1, SLOW_SECONDS)
    tracer.go()
    tracer.wait(SLOW_SECONDS)
    _, report = tracer.finish()
    incident = report["incidents"][-1]
    compare(bench, incident, after["oom"])
    others = {one["pid"]: one for one in incident["others"]}
    used = (others.get(holder.pid) or {}).get("used_bytes") or 0
    # Including its context.
    bench.equal("the other one is named", True, held <= used < held + 2 * GIB)
    bench.equal("it comes first", holder.pid, incident["others"][0]["pid"] if others else None)
    holder.go()
    holder.wait()
