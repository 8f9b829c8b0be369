# Allocates in functions that call each other. To be run with -X perf, but for the last way.
#
#   nested.py LIBCUDART CALLS WAY
#
# WAY: at once; late, with a perf map from after the first calls on, and for a line of input after that. The map is
# removed at the end.
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


WAY = sys.argv[3]
# A function called for the first time is unwound while the process lives: it must not be the last
# action of the process.
if WAY == "at once":
    evaluate()
# After the first call, code is specialised: the calls come from other places in the interpreter.
train(int(sys.argv[2]))
if WAY == "late":
    sys.activate_stack_trampoline("perf")
if WAY != "at once":
    evaluate()
if WAY == "late":
    sys.stdin.readline()
os.unlink(f"/tmp/perf-{os.getpid()}.map")
