"""A training loop that keeps a tensor of every tenth step: a leak to look at.

    torch_leak.py [STEPS]
"""

import json
import sys
import time

import torch
from torch import nn

KEPT_MIB = 64


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(4096, 4096), nn.ReLU())]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    kept = []
    for step in range(steps):
        batch = torch.randn(2048 + 512 * (step % 4), 4096, device="cuda")
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9:
            kept.append(torch.empty(KEPT_MIB << 20, dtype=torch.uint8, device="cuda"))
            torch.cuda.empty_cache()
        torch.cuda.synchronize()
        time.sleep(0.03)
    reserved = torch.cuda.memory_reserved()
    print(json.dumps({"steps": steps, "kept_bytes": len(kept) * KEPT_MIB << 20, "reserved": reserved}))


main()
