#!/usr/bin/env python3
"""Tries the changes that a run of cargo-mutants has missed with the tests of reports and recordings.

    mutants_again.py TREE RESULTS

TREE is a checkout without changes, which is changed and restored; RESULTS the folder mutants.out. Prints
"caught: NAME" or "missed: NAME" for each. scripts/mutants.sh runs it.
"""

import json
import subprocess
import sys
from pathlib import Path

TESTS = (
    "cargo", "test", "--locked", "--quiet", "--no-default-features",
    "--package", "gpuprobe-report", "--package", "gpuprobe", "--lib", "--test", "recordings", "--test", "call_sites",
)  # fmt: skip
# Several times what they take; an endless loop is caught.
PATIENCE_S = 600


def run(tree, *command, **options):
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, **options)


def is_caught(tree):
    try:
        return run(tree, *TESTS, timeout=PATIENCE_S).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main():
    tree, results = map(Path, sys.argv[1:])
    before = run(tree, *TESTS)
    if before.returncode:
        sys.exit(f"the tests fail without a change:\n{before.stdout}{before.stderr}")
    outcomes = json.loads((results / "outcomes.json").read_text())["outcomes"]
    for outcome in outcomes:
        if outcome["summary"] != "MissedMutant":
            continue
        mutant = outcome["scenario"]["Mutant"]
        diff = (results / outcome["diff_path"]).read_text()
        patched = run(tree, "patch", "--no-backup-if-mismatch", mutant["file"], input=diff)
        if patched.returncode:
            sys.exit(f"cannot change {mutant['name']}: {patched.stdout}")
        found = "caught" if is_caught(tree) else "missed"
        run(tree, "git", "checkout", "--quiet", "--", mutant["file"])
        print(f"{found}: {mutant['name']}", flush=True)


main()
