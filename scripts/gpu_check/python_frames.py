"""Checks on the Python frames of call stacks."""

from collections import Counter

from expect import losses
from expect_kinds import process_of
from frameworks import SLOW_SECONDS, environment, is_missing

MIB = 1 << 20
# Every native variant of a line by itself, with all frames.
WHOLE = ("--full-stacks", "--group", "native-stack")


def lines_of(site):
    """The Python frames of a site, innermost first, as PyTorch's history has them: the last part of
    the name, the file, the line; without those of the thread that waits for it.

    >>> frame = {"language": "python", "function": "A.f", "file": "a.py", "line": 3}
    >>> waiting = {"language": "python", "function": "[the main thread waits]", "file": None, "line": None}
    >>> lines_of({"stack": [{"language": "native"}, frame, waiting, frame]})
    (('f', 'a.py', 3),)
    """
    lines = []
    for frame in site["stack"]:
        if frame["language"] != "python":
            continue
        if frame["function"] == "[the main thread waits]":
            break
        lines.append((frame["function"].rpartition(".")[2], frame["file"], frame["line"]))
    return tuple(lines)


def sites_of(report, pid):
    return [site for site in process_of(report, pid)["sites"] if site["live_bytes"]]


def check_torch_history(bench):
    """For each segment the Python frames are those of PyTorch's own history."""
    if is_missing(bench, "torch"):
        return
    tracer = bench.trace(*WHOLE, "--", *bench.script("torch_python.py", "work", "wait"))
    after = tracer.truth("wait", 1, SLOW_SECONDS)
    report = tracer.fresh_report()
    expected = Counter()
    for segment in after["segments"]:
        expected[tuple(tuple(line) for line in segment["frames"])] += segment["bytes"]
    ours = Counter()
    for site in sites_of(report, after["pid"]):
        if any("libc10_cuda" in (frame["module"] or "") for frame in site["stack"]):
            ours[lines_of(site)] += site["live_bytes"]
    for lines in expected.keys() | ours.keys():
        bench.equal(f"bytes from {lines[:4]}", expected[lines], ours[lines])
    bench.equal("lost", {}, losses(report))
    bench.figure(bench.label, f"{len(expected)} lines that hold {sum(expected.values()) // MIB} MiB")
    tracer.go()
    bench.equal("exit status", 0, tracer.wait())
    tracer.finish()


def check_user_lines(bench, module, script, step="work", least_bytes=MIB):
    """Each site above so many bytes has a line of the program."""
    if is_missing(bench, *module.split(",")):
        return
    tracer = bench.trace(
        "--full-stacks", "--", *bench.script(script, step, "wait"), env=environment(bench)
    )
    after = tracer.truth("wait", 1, SLOW_SECONDS)
    report = tracer.fresh_report()
    sites = [s for s in sites_of(report, after["pid"]) if s["live_bytes"] >= least_bytes]
    bench.equal("there are sites", True, bool(sites))
    for site in sites:
        own = [
            f"{frame['file'].rpartition('/')[2]}:{frame['line']}"
            for frame in site["stack"]
            if frame["language"] == "python" and (frame["file"] or "").endswith(script)
        ]
        bench.equal(f"{site['live_bytes'] // MIB} MiB, {site['label']}: a line of {script}", True, bool(own))
    bench.figure(bench.label, f"{len(sites)} sites above {least_bytes / MIB:g} MiB")
    for site in sorted(sites, key=lambda site: -site["live_bytes"])[:4]:
        bench.figure(bench.label, f"{site['live_bytes'] / MIB:.1f} MiB {site['label']}")
    bench.figure("lost", f"{losses(report)}")
    tracer.go()
    bench.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
    tracer.finish()
