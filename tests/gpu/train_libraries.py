#!/usr/bin/env python3
"""A training of three steps with a library on top of PyTorch.

    python3 train_libraries.py STEP ...

    transformers  a small GPT-2 of Hugging Face's
    gpt2=N        N steps of its GPT-2 with 124 million parameters
    lightning     Lightning's trainer
    wait          print the line, then read a line from standard input
"""

import torch

import steps
import torch_tensors

kept = []


def training_step(model, optimizer, batch):
    loss = model(batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def gpt2(**sizes):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(**sizes)).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


def run_transformers():
    torch.manual_seed(1)
    model, optimizer = gpt2(n_layer=4, n_embd=768, n_head=12, vocab_size=32000)
    for _ in range(3):
        batch = torch.randint(0, 32000, (4, 512), device="cuda")
        kept.append(training_step(model, optimizer, batch))
    kept.extend((model, optimizer))
    torch.cuda.synchronize()


def run_gpt2(count):
    if not kept:
        kept.append(gpt2())
    model, optimizer = kept[0]
    for _ in range(count):
        batch = torch.randint(0, 50000, (4, 512), device="cuda")
        kept.append(training_step(model, optimizer, batch))
    torch.cuda.synchronize()


def fit(model, data, batch_size, **options):
    """Lightning's trainer, which shows and saves nothing."""
    import lightning

    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    data = torch.utils.data.TensorDataset(data)
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=batch_size))
    return trainer


def run_lightning():
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)
            )

        def training_step(self, batch, _):
            (value,) = batch
            return torch.nn.functional.mse_loss(self.layers(value), value)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    model = Model()
    kept.extend((model, fit(model, torch.randn(3 * 2048, 1024), 2048, max_epochs=1)))


if __name__ == "__main__":
    table = {
        "transformers": run_transformers,
        "gpt2": run_gpt2,
        "lightning": run_lightning,
        "wait": None,
    }
    steps.run(table, lambda: torch_tensors.truth() | {"allocated": torch.cuda.memory_allocated()})
