#!/usr/bin/env python3
"""Allocates and frees GPU memory at a steady rate.

The rate is kept against an absolute schedule: a call that is late does not
delay those after it. The last line of output, JSON, has the achieved rate as
`calls_per_second`.
"""

import harness
import options
from pacing import Schedule, is_free_due


def main():
    parser = options.parser_of(__doc__)
    add = parser.add_argument
    add(
        "--throughput",
        type=options.number(0),
        default=1000.0,
        metavar="N",
        help="calls a second, allocations and frees together; 0: as many as go",
    )
    add(
        "--allocate-size",
        type=options.size,
        default="64K",
        metavar="BYTES",
        help="of each allocation, with K, M or G for 1024 and its powers",
    )
    add(
        "--free-ratio",
        type=options.ratio,
        default=1.0,
        metavar="0..1",
        help="the part of all allocations that is freed, each chosen by chance",
    )
    add(
        "--calls",
        type=options.count,
        default=0,
        metavar="N",
        help="end after so many calls; 0: at the end of the duration",
    )
    asked = parser.parse_args()

    def body(worker, stop):
        schedule = Schedule(asked.throughput, stop.started)
        account = worker.account
        for _ in schedule.calls(stop, asked.calls):
            if is_free_due(account.allocs, account.frees, asked.free_ratio):
                worker.free_any()
            else:
                worker.allocate(asked.allocate_size)

    harness.run_threads("paced", asked, {"paced": body}, {"throughput": asked.throughput})


if __name__ == "__main__":
    main()
