"""Pacing and stopping: an absolute schedule, and the conditions that end a program.

Call number n is due at start + n / rate. A late call does not delay the next,
so that over any time the rate is the one that was asked for, or what the
program can do.
"""

import signal
import time

# Latency of a signal for a thread that sleeps: Python resumes a sleep when the handler has
# returned, and handlers run on the main thread only.
SLICE_SECONDS = 0.05


class Stop:
    """The end of a program: its duration, its work being done, or a signal.

    >>> now = [100.0]
    >>> stop = Stop(2.0, clock=lambda: now[0], sleep=lambda s: now.append(now.pop() + s))
    >>> stop.start()
    >>> stop.wait_until(101.5), now[0] == 101.5, stop.reason
    (True, True, None)
    >>> stop.wait_until(103), now[0] == 102, stop.reason
    (False, True, 'duration')
    """

    def __init__(self, duration=0.0, clock=time.monotonic, sleep=time.sleep):
        self.duration, self.clock, self.sleep = duration, clock, sleep
        self.reason = None
        self.started = self.deadline = None
        self.heard = []  # called with the number of a signal

    def start(self):
        """The duration begins."""
        self.started = self.clock()
        self.deadline = self.started + self.duration if self.duration else None

    def on_signals(self):
        """SIGINT and SIGTERM end the program as its duration does. An attribute
        and no threading.Event: setting that from a handler can deadlock."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    def _hear(self, number, _frame):
        self.end(signal.Signals(number).name)
        for call in self.heard:
            call(number)

    def end(self, reason):
        """The first reason is kept."""
        self.reason = self.reason or reason

    def reached(self):
        if self.deadline is not None and self.clock() >= self.deadline:
            self.end("duration")
        return self.reason is not None

    def wait_until(self, when):
        """Whether the time came before the end did."""
        while not self.reached():
            left = when - self.clock()
            if left <= 0:
                return True
            if self.deadline is not None:
                left = min(left, self.deadline - self.clock())
            self.sleep(max(0.0, min(left, SLICE_SECONDS)))
        return False

    def pause(self, seconds):
        """Whether that time passed before the end came."""
        return self.wait_until(self.clock() + seconds)

    def elapsed(self):
        return self.clock() - self.started


class Schedule:
    """When each of the calls is due. A rate of 0 is as fast as can be."""

    def __init__(self, rate, start):
        self.rate, self.start = rate, start

    def due(self, number):
        """
        >>> Schedule(4, 10.0).due(6), Schedule(0, 10.0).due(6)
        (11.5, 10.0)
        """
        return self.start + number / self.rate if self.rate else self.start

    def calls(self, stop, limit=0):
        """Yields the number of each call when it is due, `limit` of them (0: no
        limit). The last one has its share of the time too.

        >>> now = [0.0]
        >>> stop = Stop(1.0, clock=lambda: now[0], sleep=lambda s: now.append(now.pop() + s))
        >>> stop.start()
        >>> calls = Schedule(1000, stop.started).calls(stop)
        >>> done = [now.append(now.pop() + (0.3 if n == 5 else 0)) for n in calls]
        >>> len(done), stop.reason  # those that were late have been made up for
        (1000, 'duration')
        """
        number = 0
        while not limit or number < limit:
            if not stop.wait_until(self.due(number)):
                return
            yield number
            number += 1
        if stop.wait_until(self.due(number)):
            stop.end("done")


def is_free_due(allocs, frees, free_ratio):
    """Whether the next call frees, so that of `allocs` allocations the part
    `free_ratio` is freed. An allocation comes first.

    >>> calls, allocs, frees = "", 0, 0
    >>> for _ in range(12):
    ...     free = is_free_due(allocs, frees, 0.5)
    ...     calls += "f" if free else "a"
    ...     allocs, frees = allocs + (not free), frees + free
    >>> calls
    'aafaafaafaaf'
    """
    return int(allocs * free_ratio) > frees
