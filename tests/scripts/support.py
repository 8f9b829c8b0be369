"""Shared by the tests of the scripts."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
STRESS = SCRIPTS / "stress"
# Timeout of every wait.
LIMIT_SECONDS = 60

sys.path[:0] = [str(STRESS), str(SCRIPTS)]

# Without third-party packages, and without leaving files.
PYTHON = (sys.executable, "-S", "-B")


def run(*command, **options):
    """Runs the command to its end, with its output as text."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        stdin=subprocess.DEVNULL,
        **options,
    )
