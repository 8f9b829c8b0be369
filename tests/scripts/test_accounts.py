"""A stress program's own totals equal the calls of its backend."""

import json
import random
import unittest

import support  # noqa: F401 (it finds what is imported below)
from accounts import Worker, process_record, statement

COUNTS = ("allocs", "alloc_bytes", "frees", "freed_bytes", "failed", "calls", "live", "live_bytes")


class Memory:
    """A backend that tracks live blocks, and refuses requests beyond its capacity."""

    name, function = "memory", "cudaMalloc"

    def __init__(self, room):
        self.room, self.live, self.next, self.refused = room, {}, 1, 0

    def allocate(self, size_bytes):
        if sum(self.live.values()) + size_bytes > self.room:
            self.refused += 1
            return None
        self.next += 1
        self.live[self.next] = size_bytes
        return self.next

    def free(self, block):
        assert self.live.pop(block.handle) == block.size_bytes


def churned(backend, seed, calls):
    worker = Worker(backend, f"worker_{seed}", seed)
    choose = random.Random(seed)
    for _ in range(calls):
        what = choose.random()
        if what < 0.6:
            worker.allocate(worker.size_between(0.25, 4))
        elif what < 0.8:
            worker.free_any()
        elif what < 0.9:
            worker.free()
        else:
            worker.free(-1)
    return worker


class Accounts(unittest.TestCase):
    def test_counts_are_those_of_the_backend(self):
        backend = Memory(64 << 20)
        worker = churned(backend, 7, 5000)
        said = worker.record()
        self.assertEqual(said["live"], len(backend.live))
        self.assertEqual(said["live_bytes"], sum(backend.live.values()))
        self.assertEqual(said["failed"], backend.refused)
        self.assertGreater(said["failed"], 0)
        self.assertEqual(said["allocs"], backend.next - 1)
        self.assertEqual(said["calls"], said["allocs"] + said["frees"] + said["failed"])
        self.assertEqual(said["alloc_bytes"] - said["freed_bytes"], said["live_bytes"])
        self.assertEqual({b.handle: b.size_bytes for b in worker.blocks}, backend.live)

    def test_the_same_seed_does_the_same(self):
        records = [churned(Memory(64 << 20), 3, 1000).record() for _ in range(2)]
        self.assertEqual(*records)
        self.assertNotEqual(records[0], churned(Memory(64 << 20), 4, 1000).record())

    def test_nothing_to_free_is_no_call(self):
        worker = Worker(Memory(0), "one", 1)
        self.assertEqual((worker.free(), worker.free_any()), (0, 0))
        self.assertEqual(worker.record()["calls"], 0)

    def test_the_parts_of_the_last_line_add_up(self):
        workers = [churned(Memory(8 << 20), seed, 300) for seed in range(4)]
        processes = [process_record(10, workers[:3]), process_record(11, workers[3:])]
        line = statement({"program": "test", "seed": 1}, 2.0, processes)
        self.assertNotIn("\n", line)
        said = json.loads(line)
        wholes = [(said, said["processes"])]
        wholes += [(process, process["threads"]) for process in said["processes"]]
        for whole, parts in wholes:
            for name in COUNTS:
                self.assertEqual(whole[name], sum(part[name] for part in parts), name)
        self.assertEqual(said["calls_per_second"], said["calls"] / 2)
        self.assertEqual([p["pid"] for p in said["processes"]], [10, 11])

    def test_sizes_stay_in_their_range(self):
        worker = Worker(Memory(0), "one", 1)
        sizes = [worker.size_between(0.001, 2) for _ in range(1000)]
        self.assertGreaterEqual(min(sizes), 1024)
        self.assertLessEqual(max(sizes), 2 << 20)
        self.assertEqual({size % 1024 for size in sizes}, {0})


if __name__ == "__main__":
    unittest.main()
