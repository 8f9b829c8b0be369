#!/usr/bin/env python3
"""Allocates as a training loop does, and leaks a tensor every tenth epoch.

The weights stay. In each step the layers' activations are allocated, then,
from the last layer to the first, a gradient is allocated while the activation
is freed, and at the end the gradients go. A leak is a tensor that is kept for
good; the last line of output, JSON, has their number as `leaks`.
"""

import harness
import options


def main():
    parser = options.parser_of(__doc__)
    add = parser.add_argument
    add("--epochs", type=options.count, default=0, help="0: until the end of the duration")
    add("--steps", type=options.amount, default=4, help="in an epoch")
    add("--layers", type=options.amount, default=6, help="of the model")
    add("--tensor-mb", type=options.megabytes, default=8.0, metavar="MB", help="of a layer")
    add("--leak-every", type=options.amount, default=10, metavar="EPOCHS", help="epochs to a leak")
    add("--leak-mb", type=options.megabytes, default=32.0, metavar="MB", help="of a leak")
    add("--sleep-ms", type=options.seconds, default=20.0, metavar="MS", help="after an epoch")
    add("--compute", action="store_true", help="write the tensors, too")
    asked = parser.parse_args()
    leaked = []

    def body(worker, stop):
        layer_bytes = int(asked.tensor_mb * options.MB)

        def tensor():
            block = worker.allocate(layer_bytes)
            if asked.compute and block:
                worker.backend.compute(block)

        def step():
            first = len(worker.blocks)
            for _ in range(asked.layers):  # forward
                tensor()
            activations = len(worker.blocks) - first
            for done in range(activations):  # backward
                tensor()
                worker.free(first + activations - 1 - done)
            while len(worker.blocks) > first:  # the optimizer has used the gradients
                worker.free(-1)

        for _ in range(asked.layers):
            tensor()
        epoch = 0
        while not stop.reached() and (not asked.epochs or epoch < asked.epochs):
            epoch += 1
            for _ in range(asked.steps):
                step()
            if epoch % asked.leak_every == 0:
                block = worker.allocate(int(asked.leak_mb * options.MB))
                leaked.extend([block] if block else [])
            stop.pause(asked.sleep_ms / 1000)
        more.update(epochs=epoch, leaks=len(leaked), leaked_bytes=sum(b.size_bytes for b in leaked))

    more = {}
    harness.run_threads("training", asked, {"training": body}, more)


if __name__ == "__main__":
    main()
