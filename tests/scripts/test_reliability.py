"""The tests named in docs/reliability.md exist."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


TARGETS = ["tests/e2e", "tests/faults", "tests/recordings"]


def source_of(modules):
    """The file of a module of one of the test targets that run the whole program."""
    paths = [ROOT.joinpath(target, *modules) for target in TARGETS]
    sources = [source for path in paths for source in (path.with_suffix(".rs"), path / "mod.rs")]
    return next((source for source in sources if source.exists()), sources[0])


class Reliability(unittest.TestCase):
    def test_every_test_that_is_named_is_there(self):
        text = (ROOT / "docs/reliability.md").read_text()
        named = re.findall(r"`((?:[a-z_]+::)+)((?:root|a)_\w+)`", text)
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
            self.assertRegex(shown_by, r"`.*(::\w+|scripts/)", fault)

    def test_every_attack_has_a_test(self):
        text = (ROOT / "docs/reliability.md").read_text()
        section = text.split("## Attacks")[1].split("\n## ")[0]
        attacks = re.findall(r"^\| (?!attack \|).*\|$", section, re.MULTILINE)
        self.assertGreater(len(attacks), 20)
        for attack in attacks:
            shown_by = attack.rsplit("|", 2)[1]
            self.assertRegex(shown_by, r"`.*(\w+_\w+|--test \w+)", attack)


if __name__ == "__main__":
    unittest.main()
