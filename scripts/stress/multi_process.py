#!/usr/bin/env python3
"""Allocates and frees GPU memory in several processes, each with a context of its own.

Each process allocates a block of a size by chance, holds it for --sleep-ms, and
frees it, or leaks it with a probability of --leak-prob. Processes are forked
before any of them uses CUDA; --duration begins in each when its context is
there. The last line of output, JSON, is about all of them and each.
"""

import harness
import options


def main():
    parser = options.parser_of(__doc__)
    add = parser.add_argument
    add("--procs", type=options.amount, default=4, metavar="N", help="processes that allocate")
    options.add_sizes(parser, 1.0, 64.0)
    add(
        "--leak-prob",
        type=options.ratio,
        default=0.01,
        metavar="0..1",
        help="probability that it is kept",
    )
    add("--compute", action="store_true", help="write each block, too")
    options.add_iterations(parser, 10.0, "that a block is held", "process after so many blocks")
    asked = parser.parse_args()

    def body(worker, stop):
        done = 0
        while not stop.reached() and (not asked.iterations or done < asked.iterations):
            done += 1
            block = worker.allocate(worker.size_between(asked.min_mb, asked.max_mb))
            if block and asked.compute:
                worker.backend.compute(block)
            stop.pause(asked.sleep_ms / 1000)
            if block and worker.random.random() >= asked.leak_prob:
                worker.free(-1)

    harness.run_processes("multi_process", asked, {"multi_process": body})


if __name__ == "__main__":
    main()
