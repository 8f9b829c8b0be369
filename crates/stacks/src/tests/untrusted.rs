//! Untrusted input of the helpers, and their answers: for the fuzz targets, and for the tests that replay their
//! corpora. No part of the program.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;

use gpuprobe_cuda::Layer;
use gpuprobe_model::stack::Location;
use gpuprobe_os::regular::open_folder;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, mkfifo};

use crate::elf::{Headers, LoadSegment, Refusal};
use crate::elf_file::ElfFile;
use crate::functions::FunctionInFile;
use crate::helper::protocol::{InspectedProcess, Request, SymbolName, Wanted, decoded};
use crate::program::Served;
use crate::python::Interpreter;
use crate::python::code::{CodeRecord, PythonStack, is_code};
use crate::python::line_store::KnownLines;
use crate::python::lines::{LineEntry, line_at};
use crate::python::process::Sent;
use crate::symbols::perf_map::PerfMap;
use crate::unwind::{FunctionRules, ProcessCode, StackCopy, UnwindRule, unwind};

/// An in-memory file of these `bytes`.
pub(crate) fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"bytes", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

/// Takes in what a helper may have answered; whether any answer is like that.
pub fn try_answer(bytes: &[u8]) -> bool {
    let headers = decoded::<Result<Headers, Refusal>>(bytes).and_then(Result::ok);
    if let Some(headers) = &headers {
        headers.segments.address_of(u64::MAX);
        headers.segments.offset_of(1 << 63);
    }
    let rules = decoded::<Option<FunctionRules>>(bytes).flatten();
    for row in rules.iter().flatten() {
        try_rule(row.rule.clone());
    }
    let found = decoded::<Result<Vec<FunctionInFile>, String>>(bytes).and_then(Result::ok);
    for found in found.iter().flatten() {
        found.is_of(Layer::Driver);
    }
    let python = decoded::<Option<Interpreter>>(bytes).flatten();
    let python = python.map(|python| python.layout(u64::MAX));
    let names = decoded::<Option<Vec<SymbolName>>>(bytes);
    let process = decoded::<InspectedProcess>(bytes);
    let is_file = headers.is_some() || rules.is_some() || found.is_some() || python.is_some();
    is_file || names.is_some() || process.is_some()
}

/// Looks up an instruction in arbitrary bytes: four with the instruction's offset, four with the first line, then the
/// table.
///
/// # Panics
/// Panics if a part of the table has another line than the whole.
pub fn try_lines(bytes: &[u8]) -> Option<LineEntry> {
    let (at, bytes) = bytes.split_first_chunk()?;
    let (first_line, table) = bytes.split_first_chunk()?;
    let [at, first_line] = [at, first_line].map(|bytes| u32::from_le_bytes(*bytes));
    let line = line_at(table, first_line, at);
    let of_part = line_at(&table[..table.len() / 2], first_line, at);
    assert!(of_part == LineEntry::Beyond || of_part == line);
    Some(line)
}

/// Reads records, each after its length in two bytes. Returns the number of frames.
pub fn try_records(mut rest: &[u8]) -> usize {
    let (mut sent, mut lines, mut frames) = (Sent::default(), KnownLines::default(), 0);
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length));
        let (record, others) = after.split_at(length.min(after.len()));
        rest = others;
        if is_code(record) {
            CodeRecord::read(record).map(|code| sent.keep_code(code));
        } else if let Some((_, stack)) = PythonStack::read(record) {
            frames += sent.placed(&stack, &mut lines).0.len();
        }
    }
    frames
}

/// Reads a perf map at once and in two parts, the first of as many bytes as the first two bytes state. Returns
/// the number of functions that have a name.
///
/// # Panics
/// Panics if the parts have other functions than the whole.
pub fn try_perf_map(bytes: &[u8]) -> usize {
    let (length, text) = bytes.split_at(bytes.len().min(2));
    let length = length
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (mut whole, mut parts) = (PerfMap::default(), PerfMap::default());
    whole.append(text);
    parts.append(&text[..length.min(text.len())]);
    parts.append(&text[parts.length..]);
    assert_eq!(whole.functions, parts.functions, "the whole, and its parts");
    let starts = whole.functions.keys();
    starts.filter(|&&start| whole.find(start).is_some()).count()
}

/// Puts a folder `granted` into `folder`, with files, links to what is outside, and a FIFO, for [`try_opener`].
///
/// # Errors
/// Returns the system's error if `folder` cannot be written to.
pub fn plant(folder: &Path) -> io::Result<()> {
    let granted = folder.join("granted");
    fs::create_dir_all(granted.join("deep"))?;
    fs::write(folder.join("outside"), "outside")?;
    fs::write(granted.join("inside"), "inside")?;
    fs::write(granted.join("deep/inside"), "inside")?;
    symlink("../outside", granted.join("up"))?;
    symlink("../../outside", granted.join("deep/up"))?;
    symlink(folder.join("outside"), granted.join("absolute"))?;
    symlink("/inside", granted.join("rooted"))?;
    symlink("/proc/self/root/etc/passwd", granted.join("magic"))?;
    symlink("loop", granted.join("loop"))?;
    mkfifo(&granted.join("fifo"), Mode::from_bits_truncate(0o600))?;
    Ok(())
}

/// Has a reader open each line, a path below the folder of [`plant`]. Returns the number of files that it opened.
///
/// # Errors
/// Returns the system's error if the folder is not there, or the reader fails.
///
/// # Panics
/// Panics if it opens a file outside of the folder that it was granted, or what is no regular file.
pub fn try_opener(folder: &Path, lines: &[u8]) -> io::Result<usize> {
    let mut opened = 0;
    for line in lines.split(|&byte| byte == b'\n') {
        let [uid, gid] = [Uid::effective().as_raw(), Gid::effective().as_raw()];
        let user = (uid, gid, Vec::new());
        let wanted = Wanted::At(line.to_vec(), Some(std::process::id()), user);
        let request = Request::File(wanted);
        let granted = open_folder(&folder.join("granted"))?;
        let (_, file) = Served::default().answer(request, &[granted])?;
        let Some(file) = file else {
            continue;
        };
        opened += 1;
        assert!(file.metadata()?.is_file(), "it is no regular file");
        assert!(is_inside(folder, &file)?, "it is outside");
    }
    Ok(opened)
}

/// Whether it is one of the files in the granted folder.
fn is_inside(folder: &Path, file: &File) -> io::Result<bool> {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let opened = identity(file.metadata()?);
    for path in ["granted/inside", "granted/deep/inside"] {
        if identity(fs::metadata(folder.join(path))?) == opened {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Asks a reader everything about a file of these `bytes`, for tests with untrusted files; returns
/// the number of answers that are not empty.
pub fn try_all(bytes: &[u8]) -> io::Result<usize> {
    let mut served = Served::default();
    let file = file_of(bytes)?;
    let files = [file.try_clone()?, file.try_clone()?, file];
    let mut requests = vec![
        Request::Headers,
        Request::Rendezvous,
        Request::Interpreter,
        Request::Functions,
        Request::Links,
        Request::IsMeant(None, Some(crc32fast::hash(bytes))),
        Request::Variable("table_".to_owned()),
    ];
    let elf = ElfFile::of(&files[0]);
    let addresses: Vec<_> = match elf.headers() {
        Ok(headers) => {
            let step = |size: u64| (size / 64).max(1);
            let of = |s: &LoadSegment| (s.address, step(s.file_size));
            let begins = headers.segments.code().map(of).take(16);
            let places = begins.flat_map(|(begin, step)| {
                (0..64).map(move |n: u64| begin.wrapping_add(n.wrapping_mul(step)))
            });
            places.collect()
        }
        Err(_) => Vec::new(),
    };
    for address in addresses {
        requests.push(Request::Rules(address));
        let headers = elf.headers().ok();
        let offset = headers.and_then(|it| it.segments.offset_of(address));
        requests.extend(offset.map(|(offset, _)| Request::Symbol(offset)));
        requests.push(Request::Names(address, true));
    }
    let mut answers = 0;
    for request in requests {
        // The library that names functions may panic, which ends a reader.
        let answer = || served.answer(request, &files);
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer));
        if let Ok(answer) = answer {
            let (answer, _) = answer?;
            // `None`, and an empty list.
            answers += usize::from(answer != [0]);
        }
    }
    Ok(answers)
}

/// Code with one unwind rule, in no mapping.
struct Unmapped(Arc<UnwindRule>);

impl ProcessCode for Unmapped {
    fn place(&mut self, _: u64, _: u64) -> Option<Location> {
        None
    }

    fn rule(&mut self, _: u64, _: bool) -> Option<Arc<UnwindRule>> {
        Some(Arc::clone(&self.0))
    }
}

/// Applies a rule to a small stack.
fn try_rule(rule: UnwindRule) {
    let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let copy = StackCopy {
        ip: 0x1000,
        sp: 0x7f00_0000_0000,
        bp: 0x7f00_0000_0100,
        bytes: &bytes,
        replaced: &[],
    };
    unwind(&mut Unmapped(Arc::new(rule)), &copy);
}

/// Applies the unwind rules of a file to a small stack. Returns their number.
pub fn try_tables(file: &[u8]) -> usize {
    let Ok(file) = file_of(file) else {
        return 0;
    };
    let file = ElfFile::of(&file);
    let Ok(headers) = file.headers() else {
        return 0;
    };
    let addresses = headers
        .segments
        .code()
        .flat_map(|s| (0..128).map(|n| s.address.wrapping_add(n * (s.file_size / 128).max(1))));
    let rules = addresses.filter_map(|address| {
        file.function(address);
        file.rules(address)
    });
    rules.flatten().map(|row| try_rule(row.rule)).count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
#[path = "../../../../tests/untrusted/corpus.rs"]
pub(crate) mod corpus;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::corpus::replay;
    use super::*;
    use crate::helper::protocol::encoded;
    use crate::python::code::tests::{code_record, frame, stack_record};

    fn encoded_from<T: Serialize + DeserializeOwned>(text: &str) -> Vec<u8> {
        encoded(&serde_json::from_str::<T>(text).unwrap())
    }

    /// Valid answers of a helper.
    fn answers() -> [Vec<u8>; 4] {
        [
            encoded_from::<Result<Headers, Refusal>>(
                r#"{"Ok":{"segments":[{"is_executable":true,"offset":0,"address":4096,"file_size":99}],"eh_frame_hdr":null,"build_id":[1,2]}}"#,
            ),
            encoded_from::<Option<FunctionRules>>(
                r#"[{"addresses":{"start":0,"end":9},"rule":{"cfa":{"Register":[7,8]},"registers":[[16,{"At":{"Register":[17,-8]}}],[3,{"Is":{"Expression":[119,8]}}]],"is_signal_frame":false}}]"#,
            ),
            encoded_from::<Result<Vec<FunctionInFile>, String>>(
                r#"{"Ok":[{"row":1,"symbol":"cuMemAlloc_v2","offset":64,"first":"Emulated"}]}"#,
            ),
            encoded_from::<Option<Interpreter>>(
                r#"{"runtime":4096,"code_type":7,"stated":[120,100],"version":51118080,"eval":[{"start":1,"end":2}]}"#,
            ),
        ]
    }

    #[test]
    fn valid_answers_are_accepted() {
        assert_eq!(answers().map(|answer| try_answer(&answer)), [true; 4]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn arbitrary_answers_do_not_panic(mut answer in vec(any::<u8>(), 0..64), at in any::<usize>()) {
            try_answer(&answer);
            let mut all = answers();
            let whole = &mut all[at % 4];
            for byte in answer.drain(..).take(3) {
                let at = (at ^ usize::from(byte)) % whole.len();
                whole[at] = byte;
            }
            try_answer(whole);
        }
    }

    #[test]
    fn answers_of_the_fuzz_corpus_are_accepted_or_not() {
        let accepted = replay("answers", try_answer);
        assert!(accepted.contains(&true) && accepted.contains(&false));
    }

    #[test]
    fn frames_of_a_list_of_records_are_counted() {
        let mut bytes = Vec::new();
        for record in [
            code_record(1, "f", &[0x80, 0]),
            stack_record(1, &[frame(1, 4, true), frame(2, 4, true)], 0),
            vec![1, 2, 3],
            stack_record(2, &[frame(1, 4, true)], 0),
        ] {
            bytes.extend(u16::try_from(record.len()).unwrap().to_le_bytes());
            bytes.extend(record);
        }
        assert_eq!(try_records(&bytes), 3);
        assert_eq!(try_records(&[]), 0);
    }

    #[test]
    fn perf_maps_of_the_fuzz_corpus_are_read_in_parts() {
        let names: usize = replay("perf_maps", try_perf_map).iter().sum();
        assert!(names > 4, "{names}");
    }

    #[test]
    fn requests_to_the_opener_of_the_fuzz_corpus_stay_in_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        plant(folder.path()).unwrap();
        let path = folder.path().to_owned();
        let opened = replay("opener", move |lines| try_opener(&path, lines).unwrap());
        let opened: usize = opened.iter().sum();
        assert!(opened > 4, "{opened}");
    }
}
