"""pid_monitor.py on the tests' own processes, and plot_monitor.py on its output."""

import csv
import os
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

import support
from pid_monitor import HEADER
from support import PYTHON, SCRIPTS, run

MONITOR = (*PYTHON, str(SCRIPTS / "pid_monitor.py"), "--interval", "0.01")


class Monitor(unittest.TestCase):
    def target(self):
        """A process that lives until its input ends, or the test does."""
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.addCleanup(child.stdin.close)
        return child

    def monitor(self, *arguments):
        child = subprocess.Popen([*MONITOR, *arguments], stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.addCleanup(child.stdout.close)
        return child

    def test_it_ends_when_all_have_ended(self):
        first, second = self.target(), self.target()
        monitor = self.monitor(f"{first.pid}=the first", str(second.pid))
        lines = [monitor.stdout.readline() for _ in range(7)]
        for child in (first, second):
            child.stdin.close()
            child.wait(support.LIMIT_SECONDS)
        rows = list(csv.DictReader(lines + monitor.stdout.readlines()))
        self.assertEqual(monitor.wait(support.LIMIT_SECONDS), 0)
        self.assertEqual(lines[0].strip(), ",".join(HEADER))
        named = {(int(row["pid"]), row["description"], row["name"]) for row in rows}
        self.assertEqual(named, {(first.pid, "the first", "cat"), (second.pid, "cat", "cat")})
        for row in rows:
            self.assertGreater(float(row["memory_mb"]), 0)
            self.assertGreater(float(row["memory_percent"]), 0)
            self.assertGreaterEqual(float(row["cpu_percent"]), 0)

    def test_a_signal_ends_it(self):
        for name in ("SIGINT", "SIGTERM"):
            monitor = self.monitor(str(self.target().pid))
            monitor.stdout.readline()
            monitor.send_signal(getattr(signal, name))
            monitor.stdout.read()
            self.assertEqual(monitor.wait(support.LIMIT_SECONDS), 0)

    def test_a_process_that_is_not_there(self):
        child = self.target()
        child.stdin.close()
        child.wait(support.LIMIT_SECONDS)
        done = run(*MONITOR, str(child.pid))
        self.assertEqual(done.returncode, 1)
        self.assertIn(str(child.pid), done.stderr)

    def test_a_duration_ends_it(self):
        done = run(*MONITOR, "--duration", "0.1", f"{os.getpid()}=we")
        self.assertEqual(done.returncode, 0)
        rows = list(csv.DictReader(done.stdout.splitlines()))
        self.assertEqual({row["description"] for row in rows}, {"we"})


ROW = "2026-01-01T00:00:0{}+00:00,{},7,cat,{},2.5,0.1,0,0"
ROWS = [ROW.format(s, name, s) for s in range(5) for name in ("idle", "4000 calls/s")]


class Plot(unittest.TestCase):
    def plot(self, rows, *arguments, python=PYTHON):
        with tempfile.TemporaryDirectory() as folder:
            table, picture = Path(folder) / "table.csv", Path(folder) / "picture.svg"
            table.write_text("\n".join([",".join(HEADER), *rows]) + "\n")
            done = run(*python, SCRIPTS / "plot_monitor.py", table, "-o", picture, *arguments)
            return done, picture.read_text() if picture.exists() else ""

    def test_without_matplotlib_it_says_how_to_get_it(self):
        done, _ = self.plot(ROWS)
        self.assertEqual(done.returncode, 1)
        self.assertIn("python3-matplotlib", done.stderr)

    def test_both_charts(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("no matplotlib here")
        done, svg = self.plot(ROWS, "--title", "A title", python=(PYTHON[0], "-B"))
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in ("A title", "idle", "4000 calls/s", "% of one core", "MiB", "time (s)"):
            self.assertIn(text, svg)

    def test_no_samples(self):
        done, _ = self.plot([])
        self.assertEqual(done.returncode, 1)
        self.assertIn("no samples", done.stderr)


if __name__ == "__main__":
    unittest.main()
