"""Copies from four lines, as crates/stacks/tests/stacks/programs/copies.c does: copies.py RUNTIME."""

import ctypes
import sys

TO_DEVICE, TO_HOST, BATCH = 1, 2, 1 << 20
cuda = ctypes.CDLL(sys.argv[1])
device, pinned = ctypes.c_void_p(), ctypes.c_void_p()
pageable = ctypes.create_string_buffer(BATCH)


def read_result():
    cuda.cudaMemcpy(pageable, device, ctypes.c_size_t(4), TO_HOST)


def send_pageable():
    cuda.cudaMemcpyAsync(device, pageable, ctypes.c_size_t(BATCH), TO_DEVICE, None)


def send_pinned():
    inside = ctypes.c_void_p(pinned.value + 4096)
    cuda.cudaMemcpyAsync(device, inside, ctypes.c_size_t(BATCH // 2), TO_DEVICE, None)


def load_weights():
    cuda.cudaMemcpy(device, pageable, ctypes.c_size_t(4096), TO_DEVICE)


assert cuda.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(BATCH)) == 0
assert cuda.cudaMallocHost(ctypes.byref(pinned), ctypes.c_size_t(BATCH)) == 0
for _ in range(12):
    load_weights()
for _ in range(10):
    for function, times in ((read_result, 20), (send_pageable, 3), (send_pinned, 2)):
        for _ in range(times):
            function()
