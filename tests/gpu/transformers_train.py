#!/usr/bin/env python3
"""A training of a small transformer with Hugging Face's library.

    python3 transformers_train.py STEP ...

    work      three steps
    wait      print the line, then read a line from standard input
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import steps

kept = []


def training_step(model, optimizer, batch):
    loss = model(batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def run_work():
    torch.manual_seed(1)
    config = GPT2Config(n_layer=4, n_embd=768, n_head=12, vocab_size=32000)
    model = GPT2LMHeadModel(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(3):
        batch = torch.randint(0, 32000, (4, 512), device="cuda")
        kept.append(training_step(model, optimizer, batch))
    kept.extend((model, optimizer))
    torch.cuda.synchronize()


if __name__ == "__main__":
    steps.run({"work": run_work, "wait": None}, lambda: {"version": torch.__version__})
