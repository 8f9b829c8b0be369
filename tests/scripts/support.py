"""What the tests of the scripts share."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
STRESS = SCRIPTS / "stress"
# What waits for longer waits for something that does not come.
LIMIT_SECONDS = 60

sys.path[:0] = [str(STRESS), str(SCRIPTS)]

# Without third-party packages, whatever is installed, and without leaving anything.
PYTHON = (sys.executable, "-S", "-B")


def run(*command, **options):
    """The command, ended, with its output as text."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        stdin=subprocess.DEVNULL,
        **options,
    )
