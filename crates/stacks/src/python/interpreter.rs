//! Python interpreters in files: an executable or `libpython`.

use std::collections::HashMap;
use std::ops::Range;

use object::{Object, ObjectSymbol};
use serde::{Deserialize, Serialize};

use super::layout::{self, DEBUG_OFFSETS_BYTES, InterpreterLayout, MINORS};
use crate::elf_file::ElfFile;

/// An interpreter, as described by its file.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// Layout of its structures.
    pub layout: InterpreterLayout,
    /// Address of `_PyRuntime` in the file.
    pub runtime: u64,
    /// Address of `PyCode_Type` in the file.
    pub code_type: u64,
    /// Address ranges of the evaluation loop, which may be split.
    eval: Vec<Range<u64>>,
}

/// Symbols that describe an interpreter.
const WANTED: [&str; 5] = [
    "_PyRuntime",
    "PyCode_Type",
    "Py_Version",
    EVAL,
    // Present from 3.10 on, which has no `Py_Version`.
    "PyIter_Send",
];
const EVAL: &str = "_PyEval_EvalFrameDefault";
/// Minimum number of jumps from the evaluation loop into a function that is part of it.
const MIN_JUMPS: usize = 8;
/// Maximum number of bytes of a function searched for jumps.
const MAX_FUNCTION: u64 = 4 << 20;

/// Message why an interpreter is not supported.
pub type Refused = String;

#[derive(Clone, Copy)]
struct Symbol {
    address: u64,
    size: u64,
}

type Symbols = HashMap<&'static str, Symbol>;

/// Those of [`WANTED`] that are among `symbols`.
fn wanted<'data>(symbols: impl Iterator<Item = impl ObjectSymbol<'data>>) -> Symbols {
    let defined = symbols.filter(ObjectSymbol::is_definition);
    let named = defined.filter_map(|symbol| {
        let name = WANTED.iter().find(|name| symbol.name() == Ok(name))?;
        let (address, size) = (symbol.address(), symbol.size());
        Some((*name, Symbol { address, size }))
    });
    named.collect()
}

/// The parts of a file that describe its interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PythonFile {
    runtime: u64,
    code_type: Option<u64>,
    /// The first bytes of `_PyRuntime`.
    stated: Vec<u8>,
    version: Option<u32>,
    has_iter_send: bool,
    eval: Vec<Range<u64>>,
}

impl PythonFile {
    /// The interpreter in `file`, if there is one.
    pub(crate) fn of(file: &ElfFile) -> Option<Self> {
        let image = file.image().ok()?;
        let mut symbols = wanted(image.file.dynamic_symbols());
        if !symbols.contains_key("_PyRuntime") {
            symbols = wanted(image.file.symbols());
        }
        let runtime = symbols.get("_PyRuntime")?.address;
        let version = symbols
            .get("Py_Version")
            .and_then(|symbol| image.bytes(symbol.address, 4))
            .and_then(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)));
        let main = symbols.get(EVAL).copied();
        let main = main.or_else(|| wanted(image.file.symbols()).remove(EVAL));
        let eval = main.map(|main| {
            let main = main.address..main.address.saturating_add(main.size);
            let code = image.bytes(main.start, MAX_FUNCTION).unwrap_or_default();
            parts(file, &main, code)
        });
        let stated = image.bytes(runtime, DEBUG_OFFSETS_BYTES as u64);
        Some(Self {
            runtime,
            code_type: symbols.get("PyCode_Type").map(|symbol| symbol.address),
            stated: stated.unwrap_or_default().to_vec(),
            version,
            has_iter_send: symbols.contains_key("PyIter_Send"),
            eval: eval.unwrap_or_default(),
        })
    }
}

impl Interpreter {
    /// The interpreter described by a file.
    pub(crate) fn stated(file: PythonFile) -> Result<Self, Refused> {
        let layout = layout_of(&file)?;
        let code_type = file.code_type;
        Ok(Self {
            layout,
            runtime: file.runtime,
            code_type: code_type.ok_or("it does not export PyCode_Type")?,
            eval: file.eval,
        })
    }

    /// Whether `address` of the file is in the evaluation loop.
    pub fn runs_python(&self, address: u64) -> bool {
        self.eval.iter().any(|part| part.contains(&address))
    }
}

fn layout_of(file: &PythonFile) -> Result<InterpreterLayout, Refused> {
    if let Some(layout) = layout::of_debug_offsets(&file.stated) {
        return Ok(layout);
    }
    let minor = match file.version {
        // PY_VERSION_HEX
        Some(version) if version >> 24 == 3 => (version >> 16 & 0xff) as u8,
        Some(version) => return Err(format!("its version is {version:#x}")),
        None if file.has_iter_send => 10,
        None => 9,
    };
    layout::of_version(minor).ok_or_else(|| match MINORS.contains(&minor) {
        true => format!("this build of CPython 3.{minor} has no _Py_DebugOffsets"),
        false if minor < *MINORS.start() => {
            let oldest = MINORS.start();
            format!("CPython before 3.{oldest} is not supported")
        }
        false => format!("CPython 3.{minor} is not supported by this version of gpuprobe"),
    })
}

/// The parts of the function at `main` with machine code `code`. Compilers move cold parts elsewhere,
/// without a symbol in stripped files, but with an entry of their own in the unwind tables.
fn parts(file: &ElfFile, main: &Range<u64>, code: &[u8]) -> Vec<Range<u64>> {
    let length = usize::try_from(main.end - main.start).unwrap_or(0);
    let code = &code[..length.min(code.len())];
    let mut jumps: Vec<(Range<u64>, usize)> = Vec::new();
    for target in far_jumps(code, main) {
        if let Some((_, count)) = jumps.iter_mut().find(|(part, _)| part.contains(&target)) {
            *count += 1;
        } else if let Some(part) = file.function(target) {
            jumps.push((part, 1));
        }
    }
    let others = jumps.into_iter().filter(|(_, count)| *count >= MIN_JUMPS);
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

    fn file(version: Option<u32>, has_iter_send: bool) -> PythonFile {
        PythonFile {
            runtime: 0x1000,
            code_type: Some(0x2000),
            stated: Vec::new(),
            version,
            has_iter_send,
            eval: Vec::new(),
        }
    }

    /// An interpreter of a version before 3.13 with this evaluation loop.
    pub(crate) fn interpreter(minor: u8, eval: Range<u64>) -> Interpreter {
        let version = 3 << 24 | u32::from(minor) << 16;
        let mut interpreter = Interpreter::stated(file(Some(version), true)).unwrap();
        interpreter.eval = vec![eval];
        interpreter
    }

    #[test]
    fn versions_are_told_by_number_or_by_functions() {
        let layout = |version, iter| layout_of(&file(version, iter));
        for (version, has_iter_send, minor) in [
            (Some(0x030b_04f0), false, 11),
            (Some(0x030c_0af0), true, 12),
            (None, true, 10),
        ] {
            let found = layout(version, has_iter_send).unwrap();
            assert_eq!(found.version.minor, minor);
        }
        for (version, why) in [
            (Some(0x0207_12f0), "its version is 0x20712f0"),
            (Some(0x0309_14f0), "CPython before 3.10 is not supported"),
            (None, "CPython before 3.10 is not supported"),
            (
                Some(0x030e_00f0),
                "this build of CPython 3.14 has no _Py_DebugOffsets",
            ),
            (
                Some(0x030f_00f0),
                "CPython 3.15 is not supported by this version of gpuprobe",
            ),
        ] {
            assert_eq!(layout(version, false).unwrap_err(), why);
        }
        let untyped = PythonFile {
            code_type: None,
            ..file(None, true)
        };
        assert!(
            Interpreter::stated(untyped)
                .unwrap_err()
                .contains("PyCode_Type")
        );
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
                    ("PyIter_Send", MAIN, 8, FUNCTION),
                ],
            )
            .symbols(false, &[(EVAL, MAIN, 0x400, FUNCTION)])
            .eh_frame(&[(0x6000, 0x10), (0x7000, 0x10), (0x8000, 0x10)])
            .bytes();
        let elf = ElfFile::of(&gpuprobe_os::bounded::file_of(&bytes).unwrap());
        let found = PythonFile::of(&elf).unwrap();
        let expected = PythonFile {
            runtime: 0x9010,
            code_type: Some(0xb000),
            stated: vec![7; DEBUG_OFFSETS_BYTES],
            version: Some(0x030c_0af0),
            has_iter_send: true,
            eval: vec![MAIN..MAIN + 0x400, 0x6000..0x6010],
        };
        assert_eq!(found, expected);
        let interpreter = Interpreter::stated(found).unwrap();
        assert_eq!(
            (interpreter.runtime, interpreter.code_type),
            (0x9010, 0xb000)
        );
        for (address, runs) in [
            (MAIN, true),
            (MAIN + 0x400, false),
            (0x600f, true),
            (0x6010, false),
        ] {
            assert_eq!(interpreter.runs_python(address), runs, "{address:#x}");
        }
        let without = ElfSample::default().code(MAIN, &[0; 8]).bytes();
        let without = ElfFile::of(&gpuprobe_os::bounded::file_of(&without).unwrap());
        assert_eq!(PythonFile::of(&without), None);
    }
}
