"""The links of README.md, of the other documents in the root, and of the book in docs/."""

import re
import unittest
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = "docs/SUMMARY.md"

FENCED = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)[^`].*?\1", re.DOTALL)
INLINE = re.compile(r"\]\(\s*<?([^()\s>]+)>?[^()]*\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
HEADING = re.compile(r"^ {0,3}#{1,6} +(.*?) *#*$", re.MULTILINE)


def links(text):
    """The targets of all links and images, without those in code."""
    text = CODE.sub("`code`", FENCED.sub("", text))
    return INLINE.findall(text) + DEFINITION.findall(text)


def anchors(text):
    """The anchors of the headings, as GitHub and mdBook make them."""
    seen = {}
    found = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"\]\([^)]*\)", "", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        found.add(f"{anchor}-{count}" if count else anchor)
    return found


def broken_link(root, document, link):
    """What is wrong with a link of a document, or None."""
    if re.match(r"[a-z][a-z0-9+.-]*:", link):
        return None
    path, _, anchor = unquote(link).partition("#")
    target = (document.parent / path).resolve() if path else document
    if not target.is_file() or not target.is_relative_to(root):
        return "no such file"
    book = root / "docs"
    if document.is_relative_to(book) and not target.is_relative_to(book):
        return "is not in the book"
    if anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
        return "no such heading"
    return None


def problems(root):
    """One line for each broken link, and for each chapter that SUMMARY.md lacks."""
    root = root.resolve()
    documents = sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")])
    found = []
    for document in documents:
        for link in links(document.read_text()):
            problem = broken_link(root, document, link)
            if problem:
                found.append(f"{document.relative_to(root)}: {link}: {problem}")
    chapters = {link.partition("#")[0] for link in links((root / SUMMARY).read_text())}
    for document in documents:
        chapter = str(document.relative_to(root)).removeprefix("docs/")
        if document.is_relative_to(root / "docs") and chapter not in {*chapters, "SUMMARY.md"}:
            found.append(f"{SUMMARY}: {chapter}: no such chapter")
    return found


class Documents(unittest.TestCase):
    def test_no_link_is_broken(self):
        self.assertEqual(problems(ROOT), [])

    def test_the_checked_documents_have_links(self):
        for document, least in [("README.md", 10), (SUMMARY, 20), ("SECURITY.md", 2)]:
            self.assertGreaterEqual(len(links((ROOT / document).read_text())), least, document)

    def test_the_story_is_about_the_example(self):
        story = (ROOT / "docs/leak-story.md").read_text()
        example = (ROOT / "examples/server.py").read_text()
        bug, fix = re.findall(r"^```python\n(.*?)^```", story, re.MULTILINE | re.DOTALL)
        head = bug.partition("        for token in")[0]
        self.assertIn(bug, example)
        for program in (example, example.replace(bug, head + fix)):
            compile(program, "server.py", "exec")
        line = example[: example.index(head)].count("\n") + 2
        self.assertIn(f"server.py:{line} Server.answer", story)

    def test_the_front_page_has_at_most_150_lines(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text().splitlines()), 150)


if __name__ == "__main__":
    unittest.main()
