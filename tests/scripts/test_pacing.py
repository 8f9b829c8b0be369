"""The schedule and the end of a stress program, with a clock that only the test moves."""

import os
import signal
import unittest

import support  # noqa: F401 (it finds what is imported below)
from pacing import Schedule, Stop, is_free_due


class Clock:
    def __init__(self):
        self.now, self.sleeps = 1000.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds


def paced(rate, duration=0.0, limit=0, late=None):
    """Runs a schedule; `late` is {number of a call: seconds that it takes}. Gives
    when each call was made, since the start, and the stop."""
    clock = Clock()
    stop = Stop(duration, clock, clock.sleep)
    stop.start()
    made = []
    for number in Schedule(rate, stop.started).calls(stop, limit):
        made.append(clock.now - stop.started)
        clock.now += (late or {}).get(number, 0)
    return made, stop


class Pacing(unittest.TestCase):
    def test_calls_are_made_when_they_are_due(self):
        made, stop = paced(rate=10, limit=5)
        for number, when in enumerate(made):
            self.assertAlmostEqual(when, number / 10)
        self.assertEqual(stop.reason, "done")
        # The last call has its share of the time: else the rate would be too high.
        self.assertAlmostEqual(stop.elapsed(), 0.5)

    def test_a_late_call_is_made_up_for(self):
        made, stop = paced(rate=100, duration=1.0, late={10: 0.5})
        self.assertEqual(len(made), 100)
        self.assertAlmostEqual(made[59], 0.6)
        self.assertAlmostEqual(made[99], 0.99)
        self.assertAlmostEqual(stop.elapsed(), 1.0)

    def test_what_cannot_be_made_up_for_is_not_made(self):
        made, stop = paced(rate=100, duration=1.0, late={10: 5.0})
        self.assertEqual((len(made), stop.reason), (11, "duration"))

    def test_without_a_rate_nobody_sleeps(self):
        made, stop = paced(rate=0, limit=1000)
        self.assertEqual((len(made), stop.clock.sleeps), (1000, []))

    def test_sleeps_are_short(self):
        _, stop = paced(rate=0.5, limit=2)
        self.assertLessEqual(max(stop.clock.sleeps), 0.05)
        self.assertAlmostEqual(stop.elapsed(), 4.0)

    def test_an_end_by_another_thread_ends_a_wait(self):
        clock = Clock()
        stop = Stop(0, clock, lambda seconds: stop.end("error"))
        stop.start()
        self.assertFalse(stop.pause(1000))
        self.assertEqual(clock.now, 1000.0)


class Signals(unittest.TestCase):
    def setUp(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def test_both_signals_end_it(self):
        for number, name in ((signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")):
            heard = []
            stop = Stop()
            stop.on_signals()
            stop.heard.append(heard.append)
            stop.start()
            os.kill(os.getpid(), number)
            self.assertFalse(stop.pause(support.LIMIT_SECONDS))
            self.assertEqual((stop.reason, heard), (name, [number]))

    def test_the_first_reason_counts(self):
        stop = Stop()
        stop.end("done")
        stop.end("SIGINT")
        self.assertEqual(stop.reason, "done")


class FreeRatio(unittest.TestCase):
    def test_the_part_that_is_freed_is_exact(self):
        for ratio in (0, 0.1, 1 / 3, 0.5, 0.9, 1):
            allocs = frees = 0
            for _ in range(10_000):
                if is_free_due(allocs, frees, ratio):
                    frees += 1
                else:
                    allocs += 1
                self.assertLessEqual(frees, allocs)
                self.assertIn(int(allocs * ratio) - frees, (0, 1))


if __name__ == "__main__":
    unittest.main()
