#!/usr/bin/env python3
"""Allocates and frees GPU memory on several threads at once, by chance.

In each iteration a thread allocates a block of a size by chance with a
probability of --alloc-prob, and else frees one of its own by chance. If a block
would exceed what all threads may hold together, it frees one instead. The last
line of output, JSON, is about all of them and each.
"""

import threading

import harness
import options


class Cap:
    """The limit of all threads together."""

    def __init__(self, most_bytes):
        self.left, self.lock = most_bytes, threading.Lock()

    def take(self, size_bytes):
        with self.lock:
            if size_bytes > self.left:
                return False
            self.left -= size_bytes
            return True

    def give(self, size_bytes):
        with self.lock:
            self.left += size_bytes


def main():
    parser = options.parser_of(__doc__)
    add = parser.add_argument
    options.add_threads(parser)
    add(
        "--alloc-prob",
        type=options.ratio,
        default=0.6,
        metavar="0..1",
        help="probability of an allocation",
    )
    add(
        "--memory-cap-mb",
        type=options.megabytes,
        default=2048.0,
        metavar="MB",
        help="of all threads together",
    )
    options.add_sizes(parser, 0.25, 16.0)
    options.add_iterations(parser, 1.0, "in each iteration", "thread after so many")
    asked = parser.parse_args()
    cap = Cap(int(asked.memory_cap_mb * options.MB))

    def body(worker, stop):
        done = 0
        while not stop.reached() and (not asked.iterations or done < asked.iterations):
            done += 1
            size_bytes = worker.size_between(asked.min_mb, asked.max_mb)
            if worker.random.random() < asked.alloc_prob and cap.take(size_bytes):
                if not worker.allocate(size_bytes):
                    cap.give(size_bytes)
            else:
                cap.give(worker.free_any())
            stop.pause(asked.sleep_ms / 1000)

    bodies = {f"worker_{index}": body for index in range(asked.threads)}
    harness.run_threads("multi_thread", asked, bodies)


if __name__ == "__main__":
    main()
