#!/usr/bin/env python3
"""Writes the Rust side of bpf/abi*.h; with --check, fails where that is not what is committed.

A struct becomes `Raw...`, byte for byte: one with padding does not compile. An enum becomes an enum; one whose name
ends in an integer type, constants of that type, in a module if all of their names begin with the enum's.
"""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GENERATED = {
    "crates/cuda/src/abi/generated.rs": ["abi.h"],
    "crates/model/src/abi/generated.rs": ["abi_records.h", "abi_stacks.h"],
}
TYPES = {"char": "u8", "__u8": "u8", "__u16": "u16", "__u32": "u32", "__u64": "u64", "__s32": "i32", "__s64": "i64"}
FIELDS = {"type": "record_type"}
# Beside the layout's, what keys of maps need.
DERIVED = "Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout"
SERIALIZED = {"launch_key"}

COMMENT = r"/\*((?:(?!\*/).)*)\*/"
TYPE = re.compile(rf"(?:{COMMENT}\n)?(struct|enum) gp_(\w+) {{(.*?)}};", re.DOTALL)
MEMBER = re.compile(rf"\s*(?:{COMMENT}\s*)?([^;,/]+)[;,](?:[ \t]*{COMMENT})?\s*", re.DOTALL)


def pascal(name):
    """
    >>> pascal("LAUNCH_KEY")
    'LaunchKey'
    """
    return "".join(word.capitalize() for word in name.split("_"))


def doc(comment, indent=""):
    """The comment of C as one of Rust."""
    lines = [line.strip().removeprefix("*").strip() for line in (comment or "").strip().split("\n")]
    return "".join(f"{indent}/// {line}\n" for line in lines if line)


def members(body):
    """The comment and the code of each member."""
    found, at = [], 0
    while at < len(body.rstrip()):
        member = MEMBER.match(body, at)
        if not member:
            sys.exit(f"not understood: {body[at:].strip()}")
        found.append((member[1] or member[3], member[2].strip()))
        at = member.end()
    return found


def struct(name, body):
    """A struct of Rust."""
    fields = ""
    for comment, code in members(body):
        kind, field, length = re.fullmatch(r"(\w+|struct \w+) (\w+)(?:\[(\w+)\])?", code).groups()
        kind = TYPES.get(kind) or "Raw" + pascal(kind.removeprefix("struct gp_"))
        kind = f"[{kind}; {length.removeprefix('GP_')}]" if length else kind
        fields += f"{doc(comment, '    ')}    pub {FIELDS.get(field, field)}: {kind},\n"
    derived = DERIVED + (", Serialize, Deserialize" if name in SERIALIZED else "")
    return f"#[derive({derived})]\n#[repr(C)]\npub struct Raw{pascal(name)} {{\n{fields}}}\n"


def enum(name, body):
    """An enum of Rust, with a list of its variants."""
    found = members(body)
    prefix = os.path.commonprefix([code for _, code in found]).rpartition("_")[0] + "_"
    variants, names = "", []
    for comment, code in found:
        variant, _, value = code.removeprefix(prefix).partition(" = ")
        names.append(pascal(variant))
        variants += f"{doc(comment, '    ')}    {names[-1]}{' = ' * bool(value)}{value},\n"
    listed = ", ".join(f"Self::{variant}" for variant in names)
    return (
        f"#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n#[repr(u8)]\npub enum {pascal(name)} {{\n{variants}}}\n\n"
        f"impl {pascal(name)} {{\n    /// All, in order.\n    pub const ALL: [Self; {len(names)}] = [{listed}];\n}}\n"
    )


def constants(name, kind, comment, body):
    """Constants of Rust."""
    found = members(body)
    prefix = f"GP_{name.upper()}_"
    in_module = all(code.startswith(prefix) for _, code in found)
    prefix, indent = (prefix, "    ") if in_module else ("GP_", "")
    lines = ""
    for own, code in found:
        constant, value = code.removeprefix(prefix).split(" = ")
        lines += f"{doc(own or ('' if in_module else comment), indent)}{indent}pub const {constant}: {kind} = {value};\n"
    return f"{doc(comment)}pub mod {name} {{\n{lines}}}\n" if in_module else lines


def generate(headers):
    """The Rust side of these headers."""
    parts = [f"// Written by scripts/abi.py from {' and '.join('bpf/' + header for header in headers)}.\n"]
    for header in headers:
        for comment, what, name, body in TYPE.findall((ROOT / "bpf" / header).read_text()):
            number = re.fullmatch(r"(\w+)_([iu](?:8|16|32|64|size))", name)
            if number:
                parts.append(constants(number[1], number[2], comment, body))
            else:
                parts.append(doc(comment) + (struct if what == "struct" else enum)(name, body))
    return "\n".join(parts)


def main():
    for name, headers in GENERATED.items():
        text, path = generate(headers), ROOT / name
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{name} is not what bpf/abi*.h says: run scripts/abi.py, and commit it")


if __name__ == "__main__":
    main()
