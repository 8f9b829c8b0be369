//! Line tables of real code from every installed CPython, compared with the interpreter's own answers.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::thread;

use gpuprobe_stacks::python::lines::{LineEntry, line_at};

use crate::pythons::{Python, pythons};

/// A code object, as printed by `lines.py`.
struct Code {
    first_line: u32,
    table: Vec<u8>,
    /// Line of each instruction.
    lines: Vec<Option<u32>>,
}

impl Code {
    fn parse(text: &str) -> Self {
        let mut words = text.split(' ');
        let first_line = words.next().unwrap().parse().unwrap();
        let table = words.next().unwrap().trim_matches('-').as_bytes();
        let byte = |hex: &[u8]| u8::from_str_radix(str::from_utf8(hex).unwrap(), 16).unwrap();
        Self {
            first_line,
            table: table.chunks(2).map(byte).collect(),
            lines: words
                .map(|word| (word != "-").then(|| word.parse().unwrap()))
                .collect(),
        }
    }

    /// Checks every instruction, with the whole table and with half of it; of long functions, 128 to 255
    /// instructions, as each is looked up from the beginning.
    fn check(&self, seen: &mut BTreeMap<&'static str, u64>) {
        let half = &self.table[..self.table.len() / 2];
        let step = 1 + self.lines.len() / 128;
        for (index, line) in self.lines.iter().enumerate().step_by(step) {
            let at = u32::try_from(2 * index).unwrap();
            let expected = line.map_or(LineEntry::None, LineEntry::At);
            let whole = line_at(&self.table, self.first_line, at);
            assert_eq!(whole, expected, "at {at} of {:02x?}", self.table);
            let of_half = line_at(half, self.first_line, at);
            assert!(
                of_half == expected || of_half == LineEntry::Beyond,
                "{of_half:?} at {at} of {half:02x?}"
            );
            let kind = match (line, of_half) {
                (_, LineEntry::Beyond) => "beyond",
                (None, _) => "none",
                (Some(_), _) => "known",
            };
            *seen.entry(kind).or_default() += 1;
        }
    }
}

/// Returns the number of instructions compared.
fn check(python: &Python) -> u64 {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stacks/programs");
    let mut command = Command::new(&python.program);
    let command = command.args(["-B", "-W", "ignore"]);
    let ran = command.arg(programs.join("lines.py")).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {said}", python.version);
    let text = String::from_utf8(ran.stdout).unwrap();
    let (version, codes) = text.split_once('\n').unwrap();
    assert_eq!(version, format!("3 {}", python.minor));
    let mut seen = BTreeMap::new();
    for code in codes.lines() {
        Code::parse(code).check(&mut seen);
    }
    // All cases occurred.
    assert_eq!(seen.len(), 3, "{}: {seen:?}", python.version);
    seen.values().sum()
}

#[test]
fn instructions_have_the_same_line_as_in_cpython() {
    let pythons = pythons();
    if pythons.is_empty() {
        let _ = writeln!(
            io::stderr(),
            "NOT TESTED: no CPython is installed to compare line tables with"
        );
        return;
    }
    // Releases of one minor version have the same tables.
    let minors: BTreeMap<_, _> = pythons.into_iter().map(|p| (p.minor, p)).collect();
    let checks: Vec<_> = minors
        .into_values()
        .map(|python| {
            (
                python.version.clone(),
                thread::spawn(move || check(&python)),
            )
        })
        .collect();
    for (version, check) in checks {
        let count = check
            .join()
            .unwrap_or_else(|_| panic!("wrong with {version}"));
        // Not by `eprintln!`, which is shown for failed tests only.
        let _ = writeln!(io::stderr(), "CPython {version}: {count} instructions");
        assert!(count > 40_000);
    }
}
