"""The patches of tests/mutants apply to the code as it is."""

import unittest

from support import ROOT, run

PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))


class MutantsTest(unittest.TestCase):
    def test_patches_apply(self):
        self.assertGreater(len(PATCHES), 10)
        for patch in PATCHES:
            with self.subTest(patch.name):
                applied = run("patch", "--dry-run", "--force", "--strip=1", f"--input={patch}", cwd=ROOT)
                self.assertEqual(applied.returncode, 0, applied.stdout)


if __name__ == "__main__":
    unittest.main()
