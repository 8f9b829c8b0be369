"""Shared by the checks: the programs, gpuprobe, and the score."""

import importlib.util
import os
import sys

from children import SLOW_SECONDS, Child, Program, Tracer
from expect import compare_frame

# All modes at once.
ALL_MODES = ("--memleak", "--cudatrace", "--bandwidth-util")

# Names of kernels can be very long.
LONGEST_LINE = 600


class Bench:
    def __init__(self, gpuprobe, programs, sources, directory):
        self.gpuprobe = gpuprobe
        self.programs = programs
        self.sources = sources
        self.directory = directory
        # The benchmark that attaches empty programs, if it was built.
        self.floor = os.environ.get("GPU_CHECK_FLOOR")
        # An earlier gpuprobe, to be measured in turn with this one.
        self.before = os.environ.get("GPU_CHECK_BEFORE")
        self.passed = 0
        self.failures = []
        self.label = ""

    def ok(self):
        """What holds is only counted: the output stays short."""
        self.passed += 1

    def fail(self, what):
        self.failures.append(f"FAIL {self.label}: {what}"[:LONGEST_LINE])
        print(self.failures[-1], flush=True)

    def equal(self, what, expected, got):
        if expected == got:
            self.ok()
        else:
            self.fail(f"{what} expected {expected} got {got}")

    def all_equal(self, comparisons):
        for what, expected, got in comparisons:
            self.equal(what, expected, got)

    def within(self, what, expected, got, part):
        """Compares a measurement with a relative tolerance of `part`."""
        if got is not None and abs(got - expected) <= part * expected:
            self.ok()
        else:
            self.fail(f"{what} expected {expected:.4g} within {100 * part:.0f} % got {got}")

    def figure(self, name, text):
        print(f"figure {name}: {text}", flush=True)

    def program(self, name):
        return str(self.programs / name)

    def start(self, *argv, env=None):
        return Program(self.directory, list(argv), env)

    def trace(self, *arguments, **options):
        return Tracer(self, *arguments, **options)

    def script(self, name, *steps):
        """The command that runs a script of tests/gpu."""
        return [sys.executable, str(self.sources / name), *steps]

    def torch(self, *steps):
        return self.script("torch_tensors.py", *steps)

    def waits(self, command, *options, env=None):
        """Yields (line, report, tracer) at each wait of a program that gpuprobe starts and that ends
        well; `final` is the last report then."""
        tracer = self.trace(*options, "--", *command, env=env)
        for number in range(1, command.count("wait") + 1):
            after = tracer.truth("wait", number, SLOW_SECONDS)
            report = tracer.fresh_report()
            self.all_equal(compare_frame(report))
            yield after, report, tracer
            tracer.go()
        self.equal("exit status", 0, tracer.wait(SLOW_SECONDS))
        _, self.final = tracer.finish()

    def is_missing(self, *modules, gpus=1):
        """Whether Python modules or GPUs are missing: it says so then."""
        missing = [name for name in modules if not importlib.util.find_spec(name)]
        if not missing and gpus > 1:
            import torch

            if torch.cuda.device_count() < gpus:
                missing = [f"{gpus} GPUs"]
        if missing:
            self.figure(self.label, f"no {', '.join(missing)} on this machine: NOT CHECKED")
        return bool(missing)

    def environment(self, base=None):
        """One process, no memory taken ahead, and nothing left in the home directory."""
        return (base or os.environ) | {
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(self.directory / "inductor"),
            "TRITON_CACHE_DIR": str(self.directory / "triton"),
            "CUPY_CACHE_DIR": str(self.directory / "cupy"),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }

    def cupti(self):
        """(environment that loads the CUPTI collector into the next program,
        where its output goes); None if it could not be built."""
        library = self.programs / "libcupti_minimal.so"
        if not library.exists():
            return None
        output = self.directory / f"{Child.count + 1:02}-cupti"
        variables = {"CUDA_INJECTION64_PATH": str(library), "CUPTI_MINIMAL_OUTPUT": str(output)}
        return os.environ | variables, output


def summary(label, passed, failed, seconds):
    """The summary line of a check.

    >>> summary("late", 7, 0, 1.25), summary("late", 7, 2, 1.25), summary("idle", 0, 0, 1.25)
    ('ok late: 7 comparisons, 1.2 s', '# late: 2 of 9 comparisons failed, 1.2 s', '# idle: 1.2 s')
    """
    if failed:
        return f"# {label}: {failed} of {passed + failed} comparisons failed, {seconds:.1f} s"
    if passed:
        return f"ok {label}: {passed} comparisons, {seconds:.1f} s"
    return f"# {label}: {seconds:.1f} s"
