# Allocates in functions that call each other. To be run with -X perf.
#
#   nested.py LIBCUDART CALLS WAY
#
# WAY: remove, which takes the perf map away at the end; or wait, for a line of input before a
# function that was not called before, and for another one before the end.
import ctypes
import os
import sys

RUNTIME = ctypes.CDLL(sys.argv[1])
POINTER = ctypes.c_void_p()


def allocate(size):
    assert RUNTIME.cudaMalloc(ctypes.byref(POINTER), ctypes.c_size_t(size)) == 0


class Model:
    def forward(self, size):
        allocate(size)


def step(model):
    model.forward(4096)


def train(calls):
    model = Model()
    for _ in range(calls):
        step(model)


def evaluate():
    Model().forward(64)


# Before the first call, code is specialised: other places in the interpreter call.
train(int(sys.argv[2]))
if sys.argv[3] == "wait":
    print("ready", flush=True)
    sys.stdin.readline()
evaluate()
if sys.argv[3] == "wait":
    sys.stdin.readline()
else:
    os.unlink(f"/tmp/perf-{os.getpid()}.map")
