#!/usr/bin/env python3
"""Reports phrases, names and doc comments that are not in the field's words.

    scripts/words.py [--counts] [PATH ...]

Checks src, crates, collector, bpf, docs and README.md, or the given files and
folders of the repository. Each hit is one line, `FILE:LINE: "bad" -> "say"`.
Exceptions, each with its reason, are in scripts/words.exceptions. Exit status 1
if there is a hit, or an exception that matches nothing. `--counts` prints the
number of hits of each rule instead.
"""

import argparse
import re
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PATHS = ["src", "crates", "collector", "bpf", "docs", "README.md"]
SUFFIXES = {".rs", ".c", ".h", ".md", ".toml", ".json", ".py", ".sh", ".txt"}
GENERATED = {"bpf/vmlinux.h"}

# A line break within a phrase, with the marks that continue a comment, a quotation or a string.
GAP = r"(?:[ \t]+|[ \t]*\\?\n[ \t]*(?:///|//!|//|\*|#|>)?[ \t]*)"

LOST = r"(?:calls?|copies|events|frames|launches|messages|notices|records|rows|samples|stacks)"
LOST += r" (?:(?:that|which) )?(?:(?:are|were|was|is|has been|have been) )?"

# (rule, pattern, what to say). A space stands for any gap. Patterns ignore case.
PHRASES = [
    ("btf", r"\btype information\b", "BTF"),
    ("unwind tables", r"\bunwind(?:ing)? information\b", "DWARF CFI, or unwind tables"),
    ("frame pointers", r"\balong (?:the|its|their) frame pointers\b", "frame-pointer unwinding"),
    ("attach", r"\b(?:begins?|began) to probe\b", "attach"),
    ("resume", r"\b(?:lets?|letting) (?:\w+ ){0,3}go on\b", "resume"),
    ("drop capabilities", r"\bg[ia]ves? up (?:(?:its|all|the) )?(?:rights|capabilities)\b",
     "drop capabilities"),
    ("drop capabilities", r"\bgives up for good\b", "drops capabilities"),
    ("lost", rf"\b{LOST}(?:not kept|left out|forgotten)\b", "dropped, or lost"),
    ("host-wide", r"\b(?:the|a) whole (?:system|host|machine)\b", "host-wide"),
    ("call path", r"\bpaths? that (?:is|are) known\b", "cached call path"),
    ("reuse", r"\b(?:ids?|PIDs?|address(?:es)?|numbers?) (?:\w+ ){0,4}given (?:again|to another)\b",
     "PID reuse, or address reuse"),
    ("reuse", r"\bg[ia]ves? way\b", "address reuse, or evicted"),
    ("filter", r"sieve", "filter"),
    ("output closed", r"\bnobody reads the reports\b", "output closed; stopping"),
    ("suppressing", r"\bnothing is said any more\b", "suppressing further warnings of this kind"),
    ("self-test", r"\battached, but calls are not recorded\b",
     "self-test failed: the probe attached but never fired"),
]

# Names of modules and files, and what to call them.
MODULES = {
    "living": "process table",
    "taken": "stack store",
    "world": "host info",
    "known": "cache",
    "looks": "queue",
    "news": "updates",
}

TYPE = re.compile(r"^ *(?:pub(?:\([a-z ]+\))? )?(?:unsafe )?(?:struct|enum|trait|union) (\w+)\b")
DOC = re.compile(r"^\s*//[/!](?!/) ?(.*)$")
PUBLIC = re.compile(r"^\s*pub (?:unsafe |const |async |extern \"C\" )*"
                    r"(?:fn|struct|enum|trait|union|type|const|static|mod|\w+:)")


class Hit(NamedTuple):
    """A place that a rule objects to."""

    path: str
    line: int
    rule: str
    bad: str
    say: str

    def __str__(self):
        return f'{self.path}:{self.line}: "{self.bad}" -> "{self.say}"'


def phrases(path, text):
    """Hits of PHRASES in a text.

    >>> for hit in phrases("a.rs", "/// Kernels without type\\n/// information.\\nlet x = 1;"):
    ...     print(hit)
    a.rs:1: "type information" -> "BTF"
    >>> list(phrases("a.rs", "/// The type of information."))
    []
    """
    for rule, pattern, say in PHRASES:
        for match in re.finditer(pattern.replace(" ", GAP), text, re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            bad = re.sub(GAP, " ", match[0])
            yield Hit(path, line, rule, bad, say)


def modules(path, text):
    """Hits of MODULES in a path and in `mod` declarations.

    >>> for hit in modules("src/host/world.rs", "mod news;\\nmod new;"):
    ...     print(hit)
    src/host/world.rs:1: "world" -> "host info"
    src/host/world.rs:1: "mod news" -> "updates"
    """
    for part in Path(path).with_suffix("").parts:
        if part in MODULES:
            yield Hit(path, 1, "module name", part, MODULES[part])
    if path.endswith(".rs"):
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r"\s*(?:pub(?:\([a-z ]+\))? )?mod (\w+)\b", line)
            if match and match[1] in MODULES:
                yield Hit(path, number, "module name", f"mod {match[1]}", MODULES[match[1]])


def doc_blocks(text):
    """Doc comments of Rust: (number of the first line, its lines, the line after the attributes).

    >>> list(doc_blocks("/// A.\\n/// B.\\n#[test]\\nfn c() {}\\n//! D."))
    [(1, ['A.', 'B.'], 'fn c() {}'), (5, ['D.'], '')]
    """
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        start = at
        block = []
        while at < len(lines) and (match := DOC.match(lines[at])):
            block.append(match[1])
            at += 1
        if not block:
            at += 1
            continue
        item = at
        while item < len(lines) and lines[item].lstrip().startswith("#["):
            item += 1
        yield start + 1, block, lines[item] if item < len(lines) else ""


def docs(path, text):
    """Hits in the doc comments of a Rust file.

    >>> for hit in docs("a.rs", "/// What is read.\\nfn a() {}\\n/// A\\n///\\n/// # Errors\\n"
    ...                 "/// Those of the file.\\nfn b() {}\\n/// Its size.\\npub fn c() {}"):
    ...     print(hit)
    a.rs:1: "What is read." -> "what the item is, as a noun"
    a.rs:6: "Those of the file." -> "Returns ... if ..."
    a.rs:8: "Its size." -> "units, errors or conditions; or no comment"
    """
    for number, block, item in doc_blocks(text):
        paragraph = True
        section = ""
        for offset, line in enumerate(block):
            if line.startswith("# "):
                section = line[2:].strip()
            elif line.startswith("Those of") and (paragraph or section == "Errors"):
                yield Hit(path, number + offset, "Those of", line, "Returns ... if ...")
            elif offset == 0 and line.startswith("What "):
                yield Hit(path, number, "What", line, "what the item is, as a noun")
            paragraph = not line.strip() or line.startswith("# ")
        words = " ".join(block).split()
        if len(words) <= 3 and PUBLIC.match(item):
            say = "units, errors or conditions; or no comment"
            yield Hit(path, number, "short doc", " ".join(words), say)


def is_test(path):
    """Whether a Rust file has tests only.

    >>> is_test("crates/os/tests/mounts.rs"), is_test("src/a/tests.rs"), is_test("src/a.rs")
    (True, True, False)
    """
    parts = Path(path).with_suffix("").parts
    return "tests" in parts or parts[-1].endswith("_tests")


def types(path, text):
    """Names of the types that a Rust file defines outside its tests: (line, name).

    >>> list(types("a.rs", "pub struct A;\\n#[cfg(test)]\\nmod tests {\\n    struct B;"))
    [(1, 'A')]
    """
    if is_test(path):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*mod tests \{", line):
            return
        if match := TYPE.match(line):
            yield number, match[1]


def duplicates(defined):
    """Hits for types of one name, from (path, line, name); the first of each name is not one.

    >>> for hit in duplicates([("a.rs", 1, "Call"), ("a.rs", 5, "Row"), ("b.rs", 2, "Call")]):
    ...     print(hit)
    b.rs:2: "Call" -> "a name of its own: a.rs:1 has this one"
    """
    first = {}
    for path, line, name in defined:
        if name in first:
            say = f"a name of its own: {first[name]} has this one"
            yield Hit(path, line, "duplicate type", name, say)
        else:
            first[name] = f"{path}:{line}"


class WordsException(NamedTuple):
    """Hits of a rule that are meant, in files whose path matches, on lines that contain a text."""

    rule: str
    glob: str
    text: str

    def covers(self, hit, line):
        return self.rule == hit.rule and fnmatch(hit.path, self.glob) and self.text in line


def parse_exceptions(text):
    """Reads `RULE | GLOB | TEXT | REASON` lines; `#` begins a comment line.

    >>> parse_exceptions("# none\\nbtf | crates/*.rs | RTTI | C++ has its own\\n")
    [WordsException(rule='btf', glob='crates/*.rs', text='RTTI')]
    >>> parse_exceptions("btf | crates/*.rs | RTTI |")
    Traceback (most recent call last):
    ValueError: no reason: btf | crates/*.rs | RTTI |
    """
    exceptions = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4 or not fields[3]:
            raise ValueError(f"no reason: {line}")
        exceptions.append(WordsException(*fields[:3]))
    return exceptions


def sources(root, paths):
    """The text files below the paths: (path from the root, text)."""
    for path in paths:
        top = root / path
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        for file in files:
            name = file.relative_to(root).as_posix()
            hidden = any(part.startswith(".") or part == "target" for part in Path(name).parts)
            if file.is_file() and file.suffix in SUFFIXES and name not in GENERATED and not hidden:
                yield name, file.read_text(encoding="utf-8")


def check(root, paths, exceptions):
    """All hits that no exception covers, and the exceptions that cover nothing."""
    hits = []
    defined = []
    lines = {}
    for name, text in sources(root, paths):
        lines[name] = text.splitlines() or [""]
        hits += phrases(name, text)
        hits += modules(name, text)
        if name.endswith(".rs"):
            hits += docs(name, text)
            defined += [(name, number, type_name) for number, type_name in types(name, text)]
    hits += duplicates(defined)
    unused = list(exceptions)
    left = []
    for hit in sorted(hits):
        covering = [x for x in exceptions if x.covers(hit, lines[hit.path][hit.line - 1])]
        unused = [x for x in unused if x not in covering]
        if not covering:
            left.append(hit)
    return left, unused


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", action="store_true", help="print the hits of each rule")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    options = parser.parse_args(arguments)
    listed = parse_exceptions((ROOT / "scripts/words.exceptions").read_text(encoding="utf-8"))
    hits, unused = check(ROOT, options.paths or PATHS, listed)
    if options.counts:
        for rule, count in Counter(hit.rule for hit in hits).most_common():
            print(f"{count:5} {rule}")
    else:
        for hit in hits:
            print(hit)
    # An exception for a file that was not read says nothing.
    unused = [] if options.paths else unused
    for exception in unused:
        print(f"scripts/words.exceptions: matches nothing: {' | '.join(exception)}")
    return 1 if hits or unused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
