"""scripts/words.py finds what the table of words forbids, and only that."""

import doctest
import sys
import tempfile
import unittest
from pathlib import Path

from support import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import words  # noqa: E402


def load_tests(_loader, tests, _pattern):
    tests.addTests(doctest.DocTestSuite(words))
    return tests


class Words(unittest.TestCase):
    def hits(self, files, exceptions=""):
        """The hits in a folder with these files, and the exceptions that are not used."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            listed = words.parse_exceptions(exceptions)
            hits, unused = words.check(Path(folder), ["src"], listed)
        return [str(hit) for hit in hits], unused

    def test_phrase_in_a_rust_file_is_a_hit_with_its_line(self):
        hits, _ = self.hits({"src/a.rs": "// One.\n// Of the whole system.\n"})
        self.assertEqual(hits, ['src/a.rs:2: "the whole system" -> "host-wide"'])

    def test_images_and_hidden_files_are_not_read(self):
        files = {"src/a.svg": "the whole system", "src/.a.md": "the whole system"}
        self.assertEqual(self.hits(files), ([], []))

    def test_exception_covers_its_file_and_text_only(self):
        files = {"src/a.rs": "// C++ type information\n// type information\n"}
        hits, unused = self.hits(files, "btf | src/*.rs | C++ | RTTI of C++\n")
        self.assertEqual(hits, ['src/a.rs:2: "type information" -> "BTF"'])
        self.assertEqual(unused, [])

    def test_exception_that_matches_nothing_is_reported(self):
        _, unused = self.hits({"src/a.rs": ""}, "btf | src/*.rs | C++ | RTTI of C++\n")
        self.assertEqual(len(unused), 1)

    def test_types_of_one_name_in_two_files_are_a_hit(self):
        files = {"src/a.rs": "pub struct Row;\n", "src/b.rs": "enum Row {}\n"}
        hits, _ = self.hits(files)
        self.assertEqual(len(hits), 1)
        self.assertIn("src/b.rs:1", hits[0])

    def test_types_of_tests_are_not_compared(self):
        files = {"src/a.rs": "struct Row;\n", "src/a/tests.rs": "struct Row;\n"}
        self.assertEqual(self.hits(files)[0], [])


if __name__ == "__main__":
    unittest.main()
