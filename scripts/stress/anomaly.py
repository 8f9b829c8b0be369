#!/usr/bin/env python3
"""Has one thread take far more GPU memory, once, than all others do all the time.

In each iteration every thread allocates a block of --block-mb and frees its
oldest beyond --keep. In iteration --anomaly-iter thread --anomaly-thread (both
from 0) allocates a block of --anomaly-mb besides, and keeps it:
`gpuprobe --memleak --group thread` has it on top of that thread, and that thread
on top. The last line of output, JSON, says which one it was as `anomaly`.
"""

import harness
import options


def main():
    parser = options.parser_of(__doc__)
    add = parser.add_argument
    options.add_threads(parser)
    add(
        "--block-mb",
        type=options.megabytes,
        default=10.0,
        metavar="MB",
        help="of the common blocks",
    )
    add("--keep", type=options.count, default=4, metavar="N", help="blocks that a thread holds")
    add(
        "--anomaly-mb",
        type=options.megabytes,
        default=2096.0,
        metavar="MB",
        help="of the one large block",
    )
    add("--anomaly-thread", type=options.count, default=2, metavar="N", help="that allocates it")
    add("--anomaly-iter", type=options.count, default=10, metavar="N", help="in which it does")
    options.add_iterations(parser, 20.0, "in each iteration", "thread after so many")
    asked = parser.parse_args()
    if asked.anomaly_thread >= asked.threads:
        parser.error(f"there is no thread {asked.anomaly_thread} of {asked.threads}")
    more = {"anomaly": None}

    def body(worker, stop):
        iteration = kept = 0
        odd = worker.name == f"worker_{asked.anomaly_thread}"
        while not stop.reached() and (not asked.iterations or iteration < asked.iterations):
            if odd and iteration == asked.anomaly_iter:
                block = worker.allocate(int(asked.anomaly_mb * options.MB))
                if block:
                    kept = 1
                    # To the front, so that the oldest free one is the one after it.
                    worker.blocks.insert(0, worker.blocks.pop())
                    more["anomaly"] = {"tid": worker.tid, "bytes": block.size_bytes}
            worker.allocate(int(asked.block_mb * options.MB))
            if len(worker.blocks) - kept > asked.keep:
                worker.free(kept)
            iteration += 1
            stop.pause(asked.sleep_ms / 1000)

    bodies = {f"worker_{index}": body for index in range(asked.threads)}
    harness.run_threads("anomaly", asked, bodies, more)


if __name__ == "__main__":
    main()
