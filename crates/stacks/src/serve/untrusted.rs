//! Untrusted input of the readers, and their answers: for the fuzz targets, and for the tests that replay their
//! corpora. No part of the program.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::thread;

use gpuprobe_cuda::Layer;
use gpuprobe_os::channel::Channel;
use gpuprobe_os::privileges::User;
use gpuprobe_os::regular::open_folder;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, mkfifo};

use super::{opener, processes};
use crate::elf::{Headers, Refusal};
use crate::python::interpreter::{Interpreter, PythonFile};
use crate::python::storage::Storage;
use crate::reader::client::known;
use crate::reader::{
    InspectedProcess, MAX_BYTES, ProcessRequest, SentFunction, SymbolName, Wanted,
};
use crate::symbols::perf_map;
use crate::unwind::{FunctionRules, try_rule};

/// Takes in what a reader may have answered; whether any answer is like that.
pub fn try_answer(bytes: &[u8]) -> bool {
    let headers = serde_json::from_slice::<Result<Headers, Refusal>>(bytes).ok();
    let headers = headers.and_then(Result::ok).filter(Headers::are_sane);
    if let Some(headers) = &headers {
        headers.segments.address_of(u64::MAX);
        headers.segments.offset_of(1 << 63);
    }
    let rules = serde_json::from_slice::<FunctionRules>(bytes).ok();
    let rows = rules.iter().flat_map(|rules| &rules.rows);
    rows.for_each(|row| try_rule(&row.rule));
    let found = serde_json::from_slice::<Result<Vec<SentFunction>, String>>(bytes).ok();
    let found = found.and_then(Result::ok);
    for found in found.iter().flatten() {
        known(found, Layer::Driver);
    }
    let python = serde_json::from_slice::<PythonFile>(bytes).ok();
    let python = python.map(Interpreter::stated);
    let storage = serde_json::from_slice::<Storage>(bytes);
    let names = serde_json::from_slice::<Option<Vec<SymbolName>>>(bytes);
    let process = serde_json::from_slice::<InspectedProcess>(bytes);
    let is_file = headers.is_some() || rules.is_some() || found.is_some() || python.is_some();
    is_file || storage.is_ok() || names.is_ok() || process.is_ok()
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
    perf_map::try_parts(text, length.min(text.len()))
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

/// Has an opener answer each line: a request, or a path below the folder of [`plant`]. Returns the number of
/// files that it opened.
///
/// # Errors
/// Returns the system's error if the folder is not there, or the opener does not answer.
///
/// # Panics
/// Panics if it opens a file outside of the folder that it was granted, or what is no regular file.
pub fn try_opener(folder: &Path, lines: &[u8]) -> io::Result<usize> {
    let granted = open_folder(&folder.join("granted"))?;
    let (ours, theirs) = Channel::pair()?;
    let serving = thread::spawn(move || opener::serve(&theirs));
    let mut opened = 0;
    for line in lines.split(|&byte| byte == b'\n') {
        let is_request = line.first() == Some(&b'{');
        let path = || {
            let own = User {
                uid: Uid::effective().as_raw(),
                gid: Gid::effective().as_raw(),
                groups: Vec::new(),
            };
            serde_json::to_vec(&Wanted::Below(
                line.to_vec(),
                std::process::id(),
                (&own).into(),
            ))
        };
        let request = if is_request { line.to_vec() } else { path()? };
        ours.send(&request, Some(&granted))?;
        let Some(file) = ours.receive(true, &mut None)?.file else {
            continue;
        };
        opened += 1;
        assert!(file.metadata()?.is_file(), "it is no regular file");
        let is_below = !matches!(
            serde_json::from_slice(&request)?,
            Wanted::PerfMap(_) | Wanted::At(..)
        );
        assert!(!is_below || is_inside(folder, &file)?, "it is outside");
    }
    drop(ours);
    // A panic of its own would have ended the answers.
    let _ = serving.join();
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

/// Has an inspector of processes answer each line, a request, about this process; low addresses are those of a
/// text of its own. Returns the number of answers that are not empty.
///
/// # Panics
/// Panics if an answer has more than was asked for, or other memory.
pub fn try_processes(lines: &[u8]) -> usize {
    let text: Vec<u8> = (0..=u8::MAX).cycle().take(2 * MAX_BYTES).collect();
    let mut answers = 0;
    for line in lines.split(|&byte| byte == b'\n') {
        let Ok(request) = serde_json::from_slice(line) else {
            continue;
        };
        let pid = std::process::id();
        let answer = match request {
            ProcessRequest::Facts {
                variables, gpus, ..
            } => of_facts(pid, variables, gpus),
            ProcessRequest::Memory {
                address,
                size_bytes,
                ..
            } => of_memory(pid, &text, address, size_bytes),
        };
        answers += usize::from(!answer.is_empty());
    }
    answers
}

fn of_facts(pid: u32, variables: Vec<String>, gpus: Vec<u32>) -> Vec<u8> {
    let (asked, devices) = (variables.len(), gpus.clone());
    let answer = processes::answer(&ProcessRequest::Facts {
        pid,
        variables,
        gpus,
    });
    let facts: Result<InspectedProcess, _> = serde_json::from_slice(&answer);
    let facts = facts.unwrap_or_default();
    assert_eq!(facts.variables.len(), asked, "one value for each variable");
    assert!(facts.gpus.iter().all(|minor| devices.contains(minor)));
    assert!(!facts.command_line.is_empty(), "this process has one");
    answer
}

fn of_memory(pid: u32, text: &[u8], address: u64, size_bytes: usize) -> Vec<u8> {
    let offset = usize::try_from(address).unwrap_or(usize::MAX);
    let expected = text.get(offset..).unwrap_or_default();
    let address = match expected.is_empty() {
        true => address,
        false => expected.as_ptr().addr() as u64,
    };
    let answer = processes::answer(&ProcessRequest::Memory {
        pid,
        address,
        size_bytes,
    });
    let size = size_bytes.min(MAX_BYTES);
    assert!(answer.len() <= size, "more than was asked for");
    if size <= expected.len() {
        assert_eq!(answer, expected[..size], "other memory");
    }
    answer
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
#[path = "../../../../tests/untrusted/corpus.rs"]
mod corpus;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::corpus::replay;
    use super::*;

    /// Valid answers of a reader.
    const ANSWERS: [&str; 4] = [
        r#"{"Ok":{"segments":[{"is_executable":true,"offset":0,"address":4096,"file_size":99}],"eh_frame_hdr":null,"build_id":[1,2]}}"#,
        r#"{"rows":[{"addresses":{"start":0,"end":9},"rule":{"cfa":{"Register":[7,8]},"registers":[[16,{"At":-8}],[3,{"IsExpression":[119,8]}]],"encoding":{"address_size":8,"is_64_bit":false,"version":1},"is_signal_frame":false}}]}"#,
        r#"{"Ok":[{"row":1,"symbol":0,"offset":64,"first":"Emulated"}]}"#,
        r#"{"runtime":4096,"code_type":7,"stated":[120,100],"version":51118080,"has_iter_send":true,"has_get_frame":true,"eval":[{"start":1,"end":2}]}"#,
    ];

    #[test]
    fn valid_answers_are_accepted() {
        assert_eq!(
            ANSWERS.map(|answer| try_answer(answer.as_bytes())),
            [true; 4]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn arbitrary_answers_do_not_panic(mut answer in vec(any::<u8>(), 0..64), at in any::<usize>()) {
            try_answer(&answer);
            let mut whole = ANSWERS[at % ANSWERS.len()].as_bytes().to_vec();
            for byte in answer.drain(..).take(3) {
                let at = (at ^ usize::from(byte)) % whole.len();
                whole[at] = byte;
            }
            try_answer(&whole);
        }
    }

    #[test]
    fn answers_of_the_fuzz_corpus_are_accepted_or_not() {
        let accepted = replay("answers", try_answer);
        assert!(accepted.contains(&true) && accepted.contains(&false));
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

    #[test]
    fn requests_about_processes_of_the_fuzz_corpus_are_answered() {
        let answers: usize = replay("processes", try_processes).iter().sum();
        assert!(answers > 4, "{answers}");
    }
}
