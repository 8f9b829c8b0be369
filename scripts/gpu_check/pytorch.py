"""Checks on a PyTorch program."""

import json

from expect import compare_torch, reported_blocks

MIB = 1 << 20


def show_others(bench, report):
    """Prints the allocations of libraries with their own runtime beside the allocator."""
    others = [block for block in reported_blocks(report) if block.api != "cudaMalloc"]
    size = sum(block.size_bytes for block in others)
    calls = json.dumps(report["memleak"]["calls"])
    bench.figure(
        bench.label,
        f"calls {calls}, free_calls {report['memleak']['free_calls']},"
        f" failed_calls {report['memleak']['failed_calls']}; not the allocator's:"
        f" {len(others)} live blocks, {size / MIB:.2f} MiB",
    )


TORCH_STEPS = ("second", "matmul", "release", "wait")


def check_torch_started(bench):
    tracer = bench.trace("--", *bench.torch("first", *TORCH_STEPS))
    after = tracer.truth("wait")
    bench.all_equal(compare_torch(tracer.fresh_report(), after))
    tracer.go()
    bench.equal("exit status", 0, tracer.wait())
    _, report = tracer.finish()
    exited = {process["pid"]: process["exited"] for process in report["memleak"]["processes"]}
    bench.equal("exited", True, exited.get(after["pid"]))
    show_others(bench, report)


def check_torch_late(bench):
    target = bench.start(*bench.torch("init", "first", "wait", *TORCH_STEPS))
    before = target.truth("wait")
    tracer = bench.trace("--pid", str(target.pid))
    tracer.wait_tracing()
    target.go()
    after = target.truth("wait", 2)
    bench.all_equal(compare_torch(tracer.fresh_report(), after, before))
    _, report = tracer.finish()
    show_others(bench, report)
    target.go()
    target.wait()


def check_torch_everywhere(bench):
    """Comes after gpuprobe, with a runtime in its own wheel, and is seen in time.
    (What is not seen in time is check_new_copy's matter.)"""
    tracer = bench.trace()
    tracer.wait_tracing()
    target = bench.start(*bench.torch("wait", "first", *TORCH_STEPS))
    target.truth("wait")
    tracer.fresh_report()
    target.go()
    after = target.truth("wait", 2)
    bench.all_equal(compare_torch(tracer.fresh_report(), after))
    _, report = tracer.finish()
    show_others(bench, report)
    target.go()
    target.wait()
