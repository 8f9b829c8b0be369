"""A chat server in PyTorch that leaks GPU memory: docs/leak-story.md finds the line. `--fixed` leaks nothing."""

import itertools
import sys
import time

import torch
from torch import nn

HIDDEN, LAYERS, CONTEXT, TOKENS = 4096, 8, 32, 4


def new_cache():
    return torch.empty(LAYERS, 2, CONTEXT, HIDDEN, device="cuda", dtype=torch.half)


class Server:
    def __init__(self):
        layers = [nn.Linear(HIDDEN, 2 * HIDDEN) for _ in range(LAYERS)]
        self.layers = nn.ModuleList(layers).cuda().half()
        self.sessions = {}

    def answer(self, user, connected):
        self.sessions[user] = new_cache()
        for token in range(TOKENS):
            self.decode(self.sessions[user], token)
        if not connected:
            return
        del self.sessions[user]

    def decode(self, cache, token):
        state = torch.randn(1, HIDDEN, device="cuda", dtype=torch.half)
        for layer, kept in zip(self.layers, cache):
            keys, values = layer(state).chunk(2, dim=1)
            kept[0, token], kept[1, token] = keys[0], values[0]
            state = torch.tanh(keys + values)


class Fixed(Server):
    def answer(self, user, connected):
        try:
            super().answer(user, connected)
        finally:
            self.sessions.pop(user, None)


@torch.inference_mode()
def main(seconds, server):
    end = time.monotonic() + seconds
    for user in itertools.count():
        if time.monotonic() > end:
            break
        server.answer(user, connected=user % 4 != 0)
        time.sleep(0.04)  # until the next user asks


if __name__ == "__main__":
    main(float(sys.argv[1]), Fixed() if "--fixed" in sys.argv else Server())
