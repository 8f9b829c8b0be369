#!/usr/bin/env python3
"""A training with Lightning.

    python3 lightning_train.py STEP ...

    work      three steps
    wait      print the line, then read a line from standard input
"""

import lightning
import torch

import steps

kept = []


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


def run_work():
    data = torch.utils.data.TensorDataset(torch.randn(3 * 2048, 1024))
    loader = torch.utils.data.DataLoader(data, batch_size=2048)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="gpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    trainer.fit(model, loader)
    kept.extend((model, trainer))


if __name__ == "__main__":
    steps.run({"work": run_work, "wait": None}, lambda: {"version": torch.__version__})
