"""A chat server that leaks, on libcudart alone, as server.py."""

import ctypes
import itertools
import sys
import time

cudart = ctypes.CDLL("libcudart.so.12")


def empty(size):
    pointer = ctypes.c_void_p()
    cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer


class Server:
    def __init__(self):
        self.weights = [empty(64 << 20) for _ in range(16)]
        self.sessions = {}

    def answer(self, user, connected):
        self.sessions[user] = empty(2 << 20)  # the session's KV cache
        self.decode()
        if not connected:
            return
        cudart.cudaFree(self.sessions.pop(user))

    def decode(self):
        activations = empty(32 << 20)
        time.sleep(0.01)
        cudart.cudaFree(activations)


def main(seconds):
    server = Server()
    end = time.monotonic() + seconds
    for user in itertools.count():
        if time.monotonic() > end:
            break
        server.answer(user, connected=user % 4 != 0)


if __name__ == "__main__":
    main(float(sys.argv[1]))
