"""Makes tensors with PyTorch's allocator, and prints their stacks.

    tensors.py LIBRARY

LIBRARY is the stand-in's libc10_cuda.so. Says `ready PID`, waits for a line of input, and says of each tensor
then, a line of JSON each: its size, whether it is kept, and function, file and line of the frames that made it,
innermost first. `done` follows. After the next line, a large tensor is made and freed, and `freed` follows; another
line is the end. Each tensor has its frames as PyTorch's own history has them, too.
"""

import ctypes
import json
import os
import sys

allocator = ctypes.CDLL(sys.argv[1])
allocator.gp_torch_malloc.restype = ctypes.c_void_p
allocator.gp_torch_malloc.argtypes = ctypes.c_size_t, ctypes.c_uint64
allocator.gp_torch_free.argtypes = (ctypes.c_void_p,)
history = ctypes.c_void_p.in_dll(allocator, "gp_torch_context")
contexts = []


def note(frame):
    """Has the next tensor made by `frame`: a vector of code objects and instructions, in an object."""
    frames = []
    while frame:
        frames += id(frame.f_code), frame.f_lasti
        frame = frame.f_back
    words = (ctypes.c_uint64 * len(frames))(*frames)
    begin, end = ctypes.addressof(words), ctypes.addressof(words) + ctypes.sizeof(words)
    context = (ctypes.c_uint64 * 24)(0, 0, 0, begin, end, end)
    contexts.append((words, context))
    history.value = ctypes.addressof(context)


def told(size, is_kept=True):
    """Prints that a tensor is made by the caller; returns the stream."""
    frame, frames = sys._getframe(1), []
    note(frame)
    while frame:
        frames.append([frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno])
        frame = frame.f_back
    print(json.dumps({"size": size, "kept": is_kept, "frames": frames}), flush=True)
    return 0


def forward(sizes):
    for number, size in enumerate(sizes):
        is_kept = number % 2 == 0
        tensor = allocator.gp_torch_malloc(size, told(size, is_kept))
        if not is_kept:
            allocator.gp_torch_free(tensor)


def optimizer():
    allocator.gp_torch_malloc(30_000_000, told(30_000_000))
    return allocator.gp_torch_malloc(512, told(512))


def training_step(number):
    if number:
        training_step(number - 1)
    forward(range(1000 + number, 900_000, 50_000))


print("ready", os.getpid(), flush=True)
sys.stdin.readline()
training_step(2)
for _ in range(7):
    optimizer()
print("done", flush=True)
sys.stdin.readline()
allocator.gp_torch_free(allocator.gp_torch_malloc(100_000_000, 0))
print("freed", flush=True)
sys.stdin.readline()
