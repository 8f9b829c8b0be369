"""A program's own totals: counted at the call, printed as one line of JSON.

Every stress program ends with such a line, the native one of the stand-in CUDA
too:

    program, backend, function   what ran, on what, and the function that allocates
    seed, seconds, ended_by      `ended_by`: duration, done, SIGINT or SIGTERM
    calls, calls_per_second      allocations, frees and failed allocations, and their rate
    throughput                   the rate that was asked for, where there is one (0: none)
    allocs, alloc_bytes          what was allocated
    frees, freed_bytes           what of it was freed
    live, live_bytes             what was not; it is not freed at the end either
    failed                       allocations that CUDA refused
    processes[]                  `pid`, the counts, and `threads[]`: `tid`, `name`, the counts
"""

import json
import random
from dataclasses import asdict, dataclass


@dataclass
class Account:
    """Calls and bytes.

    >>> Account(allocs=3, alloc_bytes=30, frees=1, freed_bytes=10, failed=2).counts()["live_bytes"]
    20
    """

    allocs: int = 0
    alloc_bytes: int = 0
    frees: int = 0
    freed_bytes: int = 0
    failed: int = 0

    def counts(self):
        return {
            **asdict(self),
            "calls": self.allocs + self.frees + self.failed,
            "live": self.allocs - self.frees,
            "live_bytes": self.alloc_bytes - self.freed_bytes,
        }


class Block:
    """Memory that a worker holds. `handle` is the backend's."""

    __slots__ = ("handle", "size_bytes")

    def __init__(self, handle, size_bytes):
        self.handle, self.size_bytes = handle, size_bytes


class Worker:
    """One thread: each of its calls is made and counted here."""

    def __init__(self, backend, name, seed):
        self.backend, self.name = backend, name
        self.account = Account()
        self.blocks = []  # in the order in which they were allocated
        self.random = random.Random(seed)
        self.tid = None

    def allocate(self, size_bytes):
        """A new block, or None if CUDA refused."""
        handle = self.backend.allocate(size_bytes)
        if handle is None:
            self.account.failed += 1
            return None
        self.account.allocs += 1
        self.account.alloc_bytes += size_bytes
        block = Block(handle, size_bytes)
        self.blocks.append(block)
        return block

    def size_between(self, low_mb, high_mb):
        """A random number of bytes, in whole KiB."""
        return max(1, int(self.random.uniform(low_mb, high_mb) * 1024)) * 1024

    def free(self, index=0):
        """Frees a block (the oldest); returns its size, 0 if there is none."""
        if not self.blocks:
            return 0
        block = self.blocks.pop(index)
        self.backend.free(block)
        self.account.frees += 1
        self.account.freed_bytes += block.size_bytes
        return block.size_bytes

    def free_any(self):
        """Frees a random block, in constant time."""
        index = self.random.randrange(len(self.blocks)) if self.blocks else 0
        if index + 1 < len(self.blocks):
            self.blocks[index], self.blocks[-1] = self.blocks[-1], self.blocks[index]
        return self.free(-1)

    def record(self):
        return {"tid": self.tid, "name": self.name, **self.account.counts()}


def add_up(records):
    """The sum of all records.

    >>> both = add_up([Account(allocs=2, alloc_bytes=8).counts(), Account(failed=1).counts()])
    >>> both["allocs"], both["live_bytes"], both["calls"]
    (2, 8, 3)
    """
    names = Account().counts()
    return {name: sum(record[name] for record in records) for name in names}


def process_record(pid, workers):
    threads = [worker.record() for worker in workers]
    return {"pid": pid, **add_up(threads), "threads": threads}


def statement(facts, seconds, processes):
    """The last line of a program.

    >>> worker = Worker(None, "one", 1)
    >>> worker.account = Account(allocs=3, alloc_bytes=30, frees=1, freed_bytes=10)
    >>> said = json.loads(statement({"program": "p"}, 2.0, [process_record(7, [worker])]))
    >>> said["program"], said["calls_per_second"], said["live"], said["processes"][0]["pid"]
    ('p', 2.0, 2, 7)
    """
    total = add_up(processes)
    rate = total["calls"] / seconds if seconds > 0 else 0.0
    figures = {"seconds": round(seconds, 6), "calls_per_second": round(rate, 3)}
    return json.dumps({**facts, **figures, **total, "processes": processes})
