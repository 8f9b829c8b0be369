//! Python interpreters in files: an executable or `libpython`.

use std::collections::BTreeMap;
use std::ops::Range;

use gpuprobe_model::abi::RawPython;
use object::{Object, ObjectSymbol};
use serde::{Deserialize, Serialize};

use super::layout::{DEBUG_OFFSETS_BYTES, layout};
use crate::elf_file::ElfFile;

/// Minimum number of jumps from the evaluation loop into a function that is part of it.
const MIN_JUMPS: usize = 8;
/// Maximum number of bytes of a function searched for jumps.
const MAX_FUNCTION: u64 = 4 << 20;

/// Message why an interpreter is not supported.
pub type Refused = String;

/// An interpreter, as described by its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    /// Address of `_PyRuntime` in the file.
    runtime: u64,
    /// Address of `PyCode_Type` in the file.
    code_type: u64,
    /// The first bytes of `_PyRuntime`.
    stated: Vec<u8>,
    /// `PY_VERSION_HEX`; 0 before 3.11.
    version: u32,
    /// Address ranges of the evaluation loop, which may be split.
    eval: Vec<Range<u64>>,
}

impl Interpreter {
    /// The interpreter in `file`, if there is one.
    pub(crate) fn of(file: &ElfFile) -> Option<Self> {
        let image = file.image().ok()?;
        let find = |name: &str| {
            let mut all = image.file.dynamic_symbols().chain(image.file.symbols());
            let symbol = all.find(|one| one.is_definition() && one.name() == Ok(name))?;
            let start = symbol.address();
            Some(start..start.saturating_add(symbol.size()))
        };
        let runtime = find("_PyRuntime")?.start;
        let version = find("Py_Version").and_then(|symbol| image.bytes(symbol.start, 4));
        let version = version.and_then(|bytes| bytes.first_chunk().copied());
        let eval = find("_PyEval_EvalFrameDefault").map(|main| {
            let size = MAX_FUNCTION.min(main.end - main.start);
            let code = image.bytes(main.start, size);
            parts(file, &main, code.unwrap_or_default())
        });
        let stated = image.bytes(runtime, DEBUG_OFFSETS_BYTES);
        Some(Self {
            runtime,
            code_type: find("PyCode_Type")?.start,
            stated: stated.unwrap_or_default().to_vec(),
            version: version.map_or(0, u32::from_le_bytes),
            eval: eval.unwrap_or_default(),
        })
    }

    /// The minor version, after `3.`.
    pub fn minor(&self) -> u8 {
        self.version.to_be_bytes()[1]
    }

    /// The layout of its structures, where its file is mapped with the load bias `base`.
    ///
    /// # Errors
    /// Returns a message if its version is not supported.
    pub(crate) fn layout(&self, base: u64) -> Result<RawPython, Refused> {
        Ok(RawPython {
            runtime: base.wrapping_add(self.runtime),
            code_type: base.wrapping_add(self.code_type),
            ..layout(self.minor(), &self.stated)?
        })
    }

    /// Whether `address` of the file is in the evaluation loop.
    pub(crate) fn runs_python(&self, address: u64) -> bool {
        self.eval.iter().any(|part| part.contains(&address))
    }
}

/// The parts of the function at `main` with machine code `code`. Compilers move cold parts elsewhere,
/// without a symbol in stripped files, but with an entry of their own in the unwind tables.
fn parts(file: &ElfFile, main: &Range<u64>, code: &[u8]) -> Vec<Range<u64>> {
    let mut jumps = BTreeMap::new();
    for part in far_jumps(code, main).filter_map(|target| file.function(target)) {
        jumps.entry(part.start).or_insert((part, 0)).1 += 1;
    }
    let others = jumps.into_values().filter(|(_, count)| *count >= MIN_JUMPS);
    std::iter::once(main.clone())
        .chain(others.map(|(part, _)| part))
        .collect()
}

/// Targets of jumps out of the function at `main`. Other bytes that look like jumps have random targets,
/// few of them in the same function.
fn far_jumps<'a>(code: &'a [u8], main: &'a Range<u64>) -> impl Iterator<Item = u64> + 'a {
    const DISTANCE: usize = 4;
    (0..code.len()).filter_map(move |at| {
        // jcc rel32; jmp rel32
        let opcode = match code[at..] {
            [0x0f, 0x80..=0x8f, ..] => 2,
            [0xe9, ..] => 1,
            _ => return None,
        };
        let distance = code.get(at + opcode..)?.first_chunk::<DISTANCE>()?;
        let after = main.start.checked_add((at + opcode + DISTANCE) as u64)?;
        let target = after.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)));
        (!main.contains(&target)).then_some(target)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;
    use crate::elf::sample::{DATA, ElfSample, FUNCTION};

    /// An interpreter of a version before 3.13 with this evaluation loop.
    pub(crate) fn interpreter(minor: u8, eval: Range<u64>) -> Interpreter {
        Interpreter {
            runtime: 0x1000,
            code_type: 0x2000,
            stated: Vec::new(),
            version: 3 << 24 | u32::from(minor) << 16,
            eval: vec![eval],
        }
    }

    #[test]
    fn addresses_in_the_file_become_those_of_the_process() {
        let interpreter = interpreter(12, 0..1);
        let raw = interpreter.layout(0x10_0000).unwrap();
        assert_eq!((raw.runtime, raw.code_type), (0x10_1000, 0x10_2000));
        let without_version = Interpreter {
            version: 0,
            ..interpreter
        };
        assert!(without_version.layout(0).is_err());
    }

    /// Jumps to `target` from code at `at`, alternately with a condition and without.
    fn jumps(at: u64, target: u64, count: usize) -> Vec<u8> {
        let mut code = Vec::new();
        for n in 0..count {
            let opcode = [&[0x0f, 0x84][..], &[0xe9]][n % 2];
            code.extend(opcode);
            let after = at + code.len() as u64 + 4;
            let distance = target.wrapping_sub(after).cast_signed();
            code.extend(i32::try_from(distance).unwrap().to_le_bytes());
        }
        code
    }

    #[test]
    fn an_evaluation_loop_has_the_parts_that_it_jumps_to_often() {
        const MAIN: u64 = 0x4000;
        let often = jumps(MAIN, 0x6008, MIN_JUMPS);
        let seldom = jumps(MAIN + 0x200, 0x7008, MIN_JUMPS - 1);
        let behind = jumps(MAIN + 0x400, 0x8000, MIN_JUMPS);
        let mut code = often;
        code.resize(0x200, 0x90);
        code.extend(seldom);
        code.extend(jumps(MAIN + code.len() as u64, MAIN + 8, MIN_JUMPS));
        code.resize(0x400, 0x90);
        code.extend(behind);
        // A jump whose end is missing.
        code.push(0xe9);
        let bytes = ElfSample::default()
            .code(MAIN, &code)
            .data(0x9000, &[7; 2000])
            .data(0xa000, &0x030c_0af0u32.to_le_bytes())
            .symbols(
                true,
                &[
                    ("_PyRuntime", 0x9010, 1500, DATA),
                    ("Py_Version", 0xa000, 4, DATA),
                    ("PyCode_Type", 0xb000, 8, DATA),
                    // Not defined here.
                    ("PyCode_Type", 0, 0, DATA),
                ],
            )
            .symbols(
                false,
                &[("_PyEval_EvalFrameDefault", MAIN, 0x400, FUNCTION)],
            )
            .eh_frame(&[(0x6000, 0x10), (0x7000, 0x10), (0x8000, 0x10)])
            .bytes();
        let elf = ElfFile::of(&crate::untrusted::file_of(&bytes).unwrap());
        let found = Interpreter::of(&elf).unwrap();
        let expected = Interpreter {
            runtime: 0x9010,
            code_type: 0xb000,
            stated: vec![7; 1024],
            version: 0x030c_0af0,
            eval: vec![MAIN..MAIN + 0x400, 0x6000..0x6010],
        };
        assert_eq!(found, expected);
        assert_eq!(found.minor(), 12);
        for (address, runs) in [
            (MAIN, true),
            (MAIN + 0x400, false),
            (0x600f, true),
            (0x6010, false),
        ] {
            assert_eq!(found.runs_python(address), runs, "{address:#x}");
        }
        let without = ElfSample::default().code(MAIN, &[0; 8]).bytes();
        let without = ElfFile::of(&crate::untrusted::file_of(&without).unwrap());
        assert_eq!(Interpreter::of(&without), None);
    }
}
