"""docs/reliability.md names tests that there are."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def source_of(modules):
    """The file of a module of tests/e2e."""
    path = ROOT.joinpath("tests/e2e", *modules)
    return path.with_suffix(".rs") if path.with_suffix(".rs").exists() else path / "mod.rs"


class Reliability(unittest.TestCase):
    def test_every_test_that_is_named_is_there(self):
        text = (ROOT / "docs/reliability.md").read_text()
        named = re.findall(r"`((?:\w+::)+)(root_\w+)`", text)
        self.assertGreater(len(named), 50)
        for modules, name in named:
            source = source_of(modules.strip(":").split("::"))
            self.assertIn(f"fn {name}(", source.read_text(), f"{modules}{name}")

    def test_every_fault_has_a_test(self):
        text = (ROOT / "docs/reliability.md").read_text()
        tables = [line for line in text.split("## Limits")[0].splitlines() if line.startswith("| ")]
        faults = [line for line in tables if not line.startswith("| fault |")]
        self.assertGreater(len(faults), 40)
        for fault in faults:
            shown_by = fault.rsplit("|", 2)[1]
            self.assertRegex(shown_by, r"`.*(root_|scripts/)", fault)


if __name__ == "__main__":
    unittest.main()
