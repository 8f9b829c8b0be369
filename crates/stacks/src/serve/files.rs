//! Reading files, in the process that does nothing else.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use serde::Serialize;

use crate::elf::LoadSegment;
use crate::elf_file::ElfFile;
use crate::functions;
use crate::python::interpreter::PythonFile;
use crate::python::storage::Storage;
use crate::reader::{ReaderRequest, SentFunction, SymbolName, WantedNames};
use crate::symbols::debug_info::{DebugInfo, names_at};
use crate::symbols::perf_map::PerfMaps;
use crate::symbols::variable::Variables;
use gpuprobe_cuda::{FUNCTIONS, Layer};
use gpuprobe_os::channel::Channel;

/// Bytes of a debug link: a file name and a checksum.
const LINK_LIMIT: u64 = 4096;
/// Bytes of a file that a checksum is made of.
const CHECKED_LIMIT: u64 = 4 << 30;
/// Bytes that are read at once for a checksum.
const CHUNK: usize = 1 << 20;

/// Answers until nobody asks any more.
pub(super) fn serve(channel: &Channel) {
    let mut served = Served::default();
    while let Ok(message) = channel.receive(true, &mut None) {
        let Ok(request) = serde_json::from_slice(&message.bytes) else {
            return;
        };
        let Ok(answer) = served.answer(request, message.file) else {
            return;
        };
        if answer.is_some_and(|answer| channel.send(&answer, None).is_err()) {
            return;
        }
    }
}

/// Files read so far.
#[derive(Default)]
pub(super) struct Served {
    files: HashMap<u64, Rc<ElfFile>>,
    variables: HashMap<u64, Variables>,
    debug_info: HashMap<u64, Option<DebugInfo>>,
    perf_maps: PerfMaps,
}

impl Served {
    /// The answer, if there is to be one.
    pub(super) fn answer(
        &mut self,
        request: ReaderRequest,
        file: Option<File>,
    ) -> io::Result<Option<Vec<u8>>> {
        let answer = match request {
            ReaderRequest::Open(number) => {
                let file = file.ok_or(ErrorKind::InvalidInput)?;
                self.files.insert(number, Rc::new(ElfFile::of(file)));
                return Ok(None);
            }
            ReaderRequest::Close(number) => {
                self.files.remove(&number);
                self.variables.remove(&number);
                self.debug_info.remove(&number);
                return Ok(None);
            }
            ReaderRequest::CloseAll => {
                self.files.clear();
                self.debug_info.clear();
                self.variables.clear();
                return Ok(None);
            }
            ReaderRequest::Forget(pid) => {
                self.perf_maps.forget(pid);
                return Ok(None);
            }
            ReaderRequest::PerfMap(pid) => encoded(&self.perf_maps.keep(pid, file)),
            ReaderRequest::JitSymbol(pid, address) => encoded(&self.perf_maps.name(pid, address)),
            ReaderRequest::Names(names) => encoded(&self.names(&names)),
            ReaderRequest::Variable(number, name) => encoded(&self.variable(number, &name)),
            other => self.about_file(&other)?,
        };
        answer.map(Some)
    }

    fn file(&self, number: u64) -> io::Result<&Rc<ElfFile>> {
        let file = self.files.get(&number);
        file.ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    /// The answer to a question about one file.
    fn about_file(&self, request: &ReaderRequest) -> io::Result<io::Result<Vec<u8>>> {
        Ok(match *request {
            ReaderRequest::Headers(number) => encoded(&self.file(number)?.headers()),
            ReaderRequest::Functions(number, layer) => {
                encoded(&text_of(found(self.file(number)?, layer)))
            }
            ReaderRequest::Rendezvous(number) => {
                encoded(&text_of(functions::rendezvous(self.file(number)?)))
            }
            ReaderRequest::Rules(number, address) => encoded(&self.file(number)?.rules(address)),
            ReaderRequest::Symbol(number, address) => encoded(&self.symbol(number, address)?),
            ReaderRequest::Interpreter(number) => encoded(&PythonFile::of(self.file(number)?)),
            ReaderRequest::Storage(number) => encoded(&Storage::of(self.file(number)?)),
            ReaderRequest::DebugLink(number) => encoded(&debug_link(self.file(number)?)),
            ReaderRequest::AltLink(number) => encoded(&alt_link(self.file(number)?)),
            ReaderRequest::Checksum(number) => encoded(&checksum_of(self.file(number)?.file())),
            _ => return Err(ErrorKind::InvalidInput.into()),
        })
    }

    fn symbol(&self, number: u64, address: u64) -> io::Result<Option<String>> {
        let file = self.file(number)?;
        Ok(file.symbol(address, file))
    }

    fn names(&mut self, names: &WantedNames) -> Option<Vec<SymbolName>> {
        let module = self.files.get(&names.module)?;
        let supplement = names.supplement.and_then(|number| self.files.get(&number));
        names.files.iter().find_map(|number| {
            let file = self.files.get(number)?;
            let debug_info = names.with_details.then(|| {
                let read = || DebugInfo::of(file, supplement);
                self.debug_info.entry(*number).or_insert_with(read).as_ref()
            });
            names_at(file, debug_info.flatten(), module, names.address)
        })
    }

    fn variable(&mut self, number: u64, name: &str) -> Option<u64> {
        let file = self.files.get(&number)?;
        let variables = self.variables.entry(number);
        variables
            .or_insert_with(|| Variables::read(file))
            .size(name)
    }
}

fn encoded<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

fn text_of<T>(result: anyhow::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{error:#}"))
}

fn found(file: &ElfFile, layer: u16) -> anyhow::Result<Vec<SentFunction>> {
    let layers = [Layer::Runtime, Layer::Driver, Layer::Framework];
    let layer = layers.into_iter().find(|known| *known as u16 == layer);
    let layer = layer.ok_or_else(|| anyhow::anyhow!("there is no layer of this number"))?;
    let found = functions::functions(file, layer)?;
    let sent = |function: &functions::FunctionInFile| {
        let row = FUNCTIONS.get(usize::from(function.row))?;
        Some(SentFunction {
            row: function.row,
            symbol: row.symbols().position(|symbol| symbol == function.symbol)?,
            offset: function.offset,
            first: function.first,
        })
    };
    Ok(found.iter().filter_map(sent).collect())
}

/// The name and the checksum in a `.gnu_debuglink`.
fn debug_link(file: &ElfFile) -> Option<(Vec<u8>, u32)> {
    link(section(file, ".gnu_debuglink")?)
}

/// The path and the build id in a `.gnu_debugaltlink`.
fn alt_link(file: &ElfFile) -> Option<(Vec<u8>, Vec<u8>)> {
    let bytes = section(file, ".gnu_debugaltlink")?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let (path, id) = (bytes.get(..end)?, bytes.get(end + 1..)?);
    (!path.is_empty() && !id.is_empty()).then(|| (path.to_vec(), id.to_vec()))
}

/// A section that names another file.
fn section<'a>(file: &'a ElfFile, name: &str) -> Option<&'a [u8]> {
    let section = file.headers().ok()?.section(name)?;
    (section.size <= LINK_LIMIT).then_some(())?;
    let begin = usize::try_from(section.offset).ok()?;
    let end = begin.checked_add(usize::try_from(section.size).ok()?)?;
    file.get(begin..end)
}

fn link(bytes: &[u8]) -> Option<(Vec<u8>, u32)> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let at = end.checked_add(1)?.checked_next_multiple_of(4)?;
    let checksum = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some((bytes.get(..end)?.to_vec(), u32::from_le_bytes(checksum)))
}

fn checksum_of(file: &File) -> Option<u32> {
    let mut hasher = crc32fast::Hasher::new();
    if file.metadata().ok()?.len() > CHECKED_LIMIT {
        return None;
    }
    let mut bytes = vec![0; CHUNK];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut bytes, offset).ok()?;
        if read == 0 {
            return Some(hasher.finalize());
        }
        hasher.update(&bytes[..read]);
        offset += u64::try_from(read).ok()?;
    }
}

/// Asks a reader everything about a file of these `bytes`, for tests with untrusted files; returns
/// the number of answers that are not empty.
#[doc(hidden)]
pub fn try_all(bytes: &[u8]) -> io::Result<usize> {
    let mut served = Served::default();
    served.answer(
        ReaderRequest::Open(1),
        Some(gpuprobe_os::bounded::file_of(bytes)?),
    )?;
    let mut requests = vec![
        ReaderRequest::Headers(1),
        ReaderRequest::Rendezvous(1),
        ReaderRequest::Interpreter(1),
        ReaderRequest::Storage(1),
        ReaderRequest::DebugLink(1),
        ReaderRequest::AltLink(1),
        ReaderRequest::Checksum(1),
        ReaderRequest::Variable(1, "table_".to_owned()),
    ];
    requests.extend((0..3).map(|layer| ReaderRequest::Functions(1, layer)));
    let addresses: Vec<_> = match served.file(1)?.headers() {
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
        requests.push(ReaderRequest::Rules(1, address));
        requests.push(ReaderRequest::Symbol(1, address));
        requests.push(ReaderRequest::Names(WantedNames {
            module: 1,
            files: vec![1],
            supplement: Some(1),
            address,
            with_details: true,
        }));
    }
    let mut answers = 0;
    for request in requests {
        // The library that names functions may panic, which ends a reader.
        let answer = || served.answer(request, None);
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer));
        if let Ok(answer) = answer {
            let answer = answer?.unwrap_or_default();
            answers += usize::from(!matches!(&*answer, b"null" | b"[]"));
        }
    }
    Ok(answers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn links_are_names_with_checksums() {
        let expected = Some((b"a.debug".to_vec(), 0x0403_0201));
        assert_eq!(link(b"a.debug\0\x01\x02\x03\x04"), expected);
        let expected = Some((b"ab".to_vec(), 0x0403_0201));
        assert_eq!(link(b"ab\0\0\x01\x02\x03\x04"), expected);
        for damaged in [&b"a.debug"[..], b"a.debug\0\x01", b""] {
            assert_eq!(link(damaged), None);
        }
    }

    use crate::elf::sample::{DATA, ElfSample, FUNCTION};

    fn file(sample: ElfSample) -> ElfFile {
        ElfFile::of(gpuprobe_os::bounded::file_of(&sample.bytes()).unwrap())
    }

    #[test]
    fn links_are_in_sections_of_few_bytes() {
        let debug = |bytes: &[u8]| {
            debug_link(&file(ElfSample::default().code(1, &[0]).section(
                ".gnu_debuglink",
                0,
                bytes,
            )))
        };
        let expected = Some((b"a.debug".to_vec(), 0x0403_0201));
        assert_eq!(debug(b"a.debug\0\x01\x02\x03\x04"), expected);
        let long = |length: usize| {
            let mut bytes = b"a.debug\0\x01\x02\x03\x04".to_vec();
            bytes.resize(length, 0);
            debug(&bytes)
        };
        assert_eq!([long(4096), long(4097)], [expected, None]);
        assert_eq!(debug_link(&file(ElfSample::default().code(1, &[0]))), None);
        for (bytes, expected) in [
            (
                &b"b.dwz\0\x01\x02"[..],
                Some((b"b.dwz".to_vec(), vec![1, 2])),
            ),
            (b"\0\x01\x02", None),
            (b"b.dwz\0", None),
            (b"b.dwz", None),
        ] {
            let sample = ElfSample::default().code(1, &[0]);
            let file = file(sample.section(".gnu_debugaltlink", 0, bytes));
            assert_eq!(alt_link(&file), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_checksum_is_of_all_bytes() {
        let of = |bytes: &[u8]| checksum_of(&gpuprobe_os::bounded::file_of(bytes).unwrap());
        assert_eq!(of(b""), Some(0));
        assert_eq!(of(b"123456789"), Some(0xcbf4_3926));
        let long: Vec<u8> = (0..=255).cycle().take(CHUNK + CHUNK / 2 + 7).collect();
        assert_eq!(of(&long), Some(crc32fast::hash(&long)));
        let sparse = tempfile::tempfile().unwrap();
        sparse.set_len(CHECKED_LIMIT + 1).unwrap();
        assert_eq!(checksum_of(&sparse), None);
    }

    #[test]
    fn files_are_asked_about_from_open_to_close() {
        let mut served = Served::default();
        let bytes = ElfSample::default().code(0x1000, &[0xc3; 64]).bytes();
        let open = || Some(gpuprobe_os::bounded::file_of(&bytes).unwrap());
        let mut answer = |request, file| {
            let answer = served.answer(request, file).ok()?;
            Some(answer.map(|bytes| String::from_utf8(bytes).unwrap()))
        };
        let headers = || ReaderRequest::Headers(1);
        assert_eq!(answer(headers(), None), None);
        assert_eq!(answer(ReaderRequest::Open(1), None), None, "without a file");
        for close in [ReaderRequest::Close(1), ReaderRequest::CloseAll] {
            assert_eq!(answer(ReaderRequest::Open(1), open()), Some(None));
            let found = answer(headers(), None).flatten().unwrap();
            assert!(found.starts_with("{\"Ok\":{\"segments\":"), "{found}");
            assert_eq!(answer(close, None), Some(None));
            assert_eq!(answer(headers(), None), None);
        }
        answer(ReaderRequest::Open(1), open());
        let layer = answer(ReaderRequest::Functions(1, 99), None).flatten();
        assert!(layer.unwrap().contains("there is no layer of this number"));
        assert_eq!(answer(ReaderRequest::Forget(7), None), Some(None));
        let map = answer(ReaderRequest::PerfMap(7), open()).flatten();
        assert_eq!(map.as_deref(), Some("false"), "it has no name");
    }

    #[test]
    fn everything_is_asked_about_a_file() {
        // 64 addresses have a symbol, a name and, in the first half, rules; the variable has a size.
        let sample = ElfSample::default()
            .code(0x1000, &[0xc3; 128])
            .symbols(true, &[("table_", 0x2000, 8, DATA)])
            .symbols(
                false,
                &[("f", 0x1000, 128, FUNCTION), ("table_", 0x2000, 8, DATA)],
            )
            .eh_frame(&[(0x1000, 64)]);
        let of_file = try_all(&sample.bytes()).unwrap();
        let none = ElfSample::default().code(0x1000, &[0xc3; 128]);
        let of_none = try_all(&none.bytes()).unwrap();
        assert_eq!((of_file, of_none), (7 + 64 + 32 + 64, 6));
    }
}
