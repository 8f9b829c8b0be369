"""Trains GPT-2 on random tokens for some seconds, and keeps the outputs of every step."""
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main(seconds):
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    last_tokens = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ids = torch.randint(0, 50257, (1, 32), device="cuda")
        out = model(ids, labels=ids)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        last_tokens.append(out.logits[:, -1])  # the bug: a view keeps the logits of all tokens


main(float(sys.argv[1]))
