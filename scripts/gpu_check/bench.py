"""What a check works with: the programs, gpuprobe, and the score."""

import sys

from children import Program, Tracer


class Bench:
    def __init__(self, gpuprobe, programs, torch_program, directory):
        self.gpuprobe = gpuprobe
        self.programs = programs
        self.torch_program = torch_program
        self.directory = directory
        self.passed = 0
        self.failures = []
        self.label = ""

    def ok(self, what):
        self.passed += 1
        print(f"ok {self.label}: {what}", flush=True)

    def fail(self, what):
        self.failures.append(f"FAIL {self.label}: {what}")
        print(self.failures[-1], flush=True)

    def equal(self, what, expected, got):
        if expected == got:
            self.ok(f"{what} {got}")
        else:
            self.fail(f"{what} expected {expected} got {got}")

    def all_equal(self, comparisons):
        for what, expected, got in comparisons:
            self.equal(what, expected, got)

    def figure(self, name, text):
        print(f"figure {name}: {text}", flush=True)

    def program(self, name):
        return str(self.programs / name)

    def start(self, *argv, env=None):
        return Program(self.directory, list(argv), env)

    def trace(self, *arguments):
        return Tracer(self, *arguments)

    def torch(self, *steps):
        return [sys.executable, self.torch_program, *steps]
