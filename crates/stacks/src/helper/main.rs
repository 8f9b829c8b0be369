//! The helper program.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;

use object::Object;
use serde::Serialize;

use super::processes::MAX_BYTES;
use super::protocol::{
    FoundFunction, InspectedProcess, Request, SymbolName, Wanted, WantedNames, decoded, encoded,
};
use super::{ALL_ARE_TRUSTED, ARGUMENT, FileReader, HelperHost, Opener, ProcessReader, Role};
use crate::AddressSpaces;
use crate::elf::LoadSegment;
use crate::elf_file::ElfFile;
use crate::functions;
use crate::python::interpreter::PythonFile;
use crate::python::storage::Storage;
use crate::store::StackStore;
use crate::symbols::HostFiles;
use crate::symbols::debug_info::{DebugInfo, names_at};
use crate::symbols::perf_map::PerfMap;
use crate::symbols::variable::Variables;
use gpuprobe_cuda::{FUNCTIONS, Layer};
use gpuprobe_os::channel::Channel;
use gpuprobe_os::confined::{self, Confinement};
use gpuprobe_os::privileges::{AS_OTHERS, Capability, LOOK, User};
use gpuprobe_os::regular::{
    open_own_in_root, open_regular, open_regular_beneath, open_regular_in_root,
};
use gpuprobe_os::{kernel, memory, mounts, privileges, proc};

/// Bytes of a link to another file.
const LINK_LIMIT: usize = 4096;
/// Bytes of a file that a checksum is made of.
const CHECKED_LIMIT: u64 = 4 << 30;
/// Bytes that are read at once for a checksum.
const CHUNK: usize = 1 << 20;

impl Role {
    fn confinement(self) -> Confinement {
        match self {
            Self::Reader => Confinement {
                data_bytes: 16 << 20,
                kept: &[LOOK, AS_OTHERS],
                opens_files: true,
            },
            Self::Parser => Confinement {
                data_bytes: 160 << 20,
                kept: &[],
                opens_files: false,
            },
        }
    }
}

/// Is a helper, if our executable was started as one.
pub fn serve_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != ARGUMENT {
        return None;
    }
    let name = words.next()?;
    let role = Role::ALL.into_iter().find(|role| role.name() == name)?;
    if words.next().is_some_and(|word| word == ALL_ARE_TRUSTED) {
        mounts::trust_all();
    }
    Some(be(role).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn be(role: Role) -> anyhow::Result<()> {
    let quick = io::stdin().as_fd().try_clone_to_owned()?;
    let slow = io::stdout().as_fd().try_clone_to_owned()?;
    // How probes are executed depends on it, and a parser cannot read it later.
    kernel::release();
    confined::confine(&role.confinement())?;
    serve(&Channel(quick.into()), Channel(slow.into()));
    Ok(())
}

/// Answers on both lanes, until nobody asks any more.
pub(super) fn serve(quick: &Channel, slow: Channel) {
    if thread::Builder::new()
        .spawn(move || serve_lane(&slow))
        .is_ok()
    {
        serve_lane(quick);
    }
}

/// Says that it has begun, and answers.
fn serve_lane(channel: &Channel) {
    let mut served = Served::default();
    let mut answer = Answer::default();
    while channel.send(&answer.bytes, answer.file.as_ref()).is_ok() {
        answer = loop {
            let Ok(message) = channel.receive(true, None) else {
                return;
            };
            let request = decoded(&message.bytes);
            match request.map(|request| served.answer(request, message.file)) {
                Some(Ok(Some(answer))) => break answer,
                Some(Ok(None)) => {}
                _ => return,
            }
        };
    }
}

/// An answer, and a file that comes with it.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    pub(super) file: Option<File>,
}

impl<T: Serialize> From<&T> for Answer {
    fn from(value: &T) -> Self {
        Self {
            bytes: encoded(value),
            file: None,
        }
    }
}

/// The files that were sent on a lane, by number.
#[derive(Default)]
pub(super) struct Served(HashMap<u64, SentFile>);

/// A file, and what was read of it.
struct SentFile {
    file: File,
    elf: OnceCell<Rc<ElfFile>>,
    debug_info: OnceCell<Option<DebugInfo>>,
    variables: OnceCell<Variables>,
    perf_map: PerfMap,
}

impl SentFile {
    fn new(file: File) -> Self {
        Self {
            file,
            elf: OnceCell::new(),
            debug_info: OnceCell::new(),
            variables: OnceCell::new(),
            perf_map: PerfMap::default(),
        }
    }

    fn elf(&self) -> &Rc<ElfFile> {
        self.elf.get_or_init(|| Rc::new(ElfFile::of(&self.file)))
    }

    fn debug_info(&self, supplement: Option<&Rc<ElfFile>>) -> io::Result<Option<&DebugInfo>> {
        if self.debug_info.get().is_none() {
            let read = DebugInfo::of(self.elf(), supplement)?;
            let _ = self.debug_info.set(read);
        }
        Ok(self.debug_info.get().and_then(Option::as_ref))
    }
}

impl Served {
    /// The answer, if there is to be one.
    pub(super) fn answer(
        &mut self,
        request: Request,
        file: Option<File>,
    ) -> io::Result<Option<Answer>> {
        match &request {
            Request::Open(number) => {
                let file = file.ok_or(ErrorKind::InvalidInput)?;
                self.0.insert(*number, SentFile::new(file));
            }
            Request::Close(number) => drop(self.0.remove(number)),
            Request::CloseAll => self.0.clear(),
            Request::Process { .. } | Request::Memory { .. } | Request::File(_) => {
                return Ok(Some(of_reader(request, file.as_ref())));
            }
            _ => return self.of_parser(&request).map(Some),
        }
        Ok(None)
    }

    fn file(&self, number: u64) -> io::Result<&SentFile> {
        let file = self.0.get(&number);
        file.ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    fn elf(&self, number: u64) -> io::Result<&Rc<ElfFile>> {
        self.file(number).map(SentFile::elf)
    }

    /// The answer to a question about files.
    fn of_parser(&mut self, request: &Request) -> io::Result<Answer> {
        Ok(match request {
            Request::Headers(number) => Answer::from(&self.elf(*number)?.headers()),
            Request::Functions(number, layer) => {
                Answer::from(&text_of(found(self.elf(*number)?, *layer)))
            }
            Request::Rendezvous(number) => {
                Answer::from(&text_of(functions::rendezvous(self.elf(*number)?)))
            }
            Request::Rules(number, address) => Answer::from(&self.elf(*number)?.rules(*address)),
            Request::Symbol(number, address) => {
                let file = self.elf(*number)?;
                Answer::from(&file.symbol(*address, file))
            }
            Request::Variable(number, name) => {
                let file = self.file(*number)?;
                let read = || Variables::read(file.elf());
                Answer::from(&file.variables.get_or_init(read).size(name))
            }
            Request::Interpreter(number) => Answer::from(&PythonFile::of(self.elf(*number)?)),
            Request::Storage(number) => Answer::from(&Storage::of(self.elf(*number)?)),
            Request::DebugLink(number) => Answer::from(&debug_link(self.elf(*number)?)),
            Request::AltLink(number) => Answer::from(&alt_link(self.elf(*number)?)),
            Request::Checksum(number) => Answer::from(&checksum_of(&self.file(*number)?.file)),
            Request::Names(names) => Answer::from(&self.names(names)?),
            Request::JitSymbol(number, address) => {
                let file = self.0.get_mut(number).ok_or(ErrorKind::InvalidInput)?;
                Answer::from(&file.perf_map.name(&file.file, *address))
            }
            _ => return Err(ErrorKind::InvalidInput.into()),
        })
    }

    fn names(&self, names: &WantedNames) -> io::Result<Option<Vec<SymbolName>>> {
        let module = self.elf(names.module)?;
        let supplement = names.supplement.map(|number| self.elf(number));
        let supplement = supplement.transpose()?;
        for number in &names.files {
            let file = self.file(*number)?;
            let debug_info = match names.with_details {
                true => file.debug_info(supplement)?,
                false => None,
            };
            let found = names_at(file.elf(), debug_info, module, names.address);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// The answer to a question about a process, or for a file.
fn of_reader(request: Request, folder: Option<&File>) -> Answer {
    match request {
        Request::Process {
            pid,
            variables,
            gpus,
        } => Answer::from(&inspected(pid, &variables, &gpus)),
        Request::Memory {
            pid,
            address,
            size_bytes,
        } => {
            let mut buffer = [0; MAX_BYTES];
            let buffer = &mut buffer[..MAX_BYTES.min(size_bytes)];
            Answer::from(&memory::read(pid, address, buffer).unwrap_or_default())
        }
        Request::File(wanted) => Answer {
            file: open(wanted, folder).ok(),
            ..Answer::default()
        },
        _ => Answer::default(),
    }
}

fn inspected(pid: u32, variables: &[String], gpus: &[u32]) -> InspectedProcess {
    let has_node =
        |minor: &&u32| Path::new(&format!("/proc/{pid}/root/dev/nvidia{minor}")).exists();
    InspectedProcess {
        command_line: proc::command_line(pid).unwrap_or_default(),
        variables: proc::variables(pid, variables).unwrap_or_default(),
        gpus: gpus.iter().filter(has_node).copied().collect(),
    }
}

fn open(wanted: Wanted, folder: Option<&File>) -> io::Result<File> {
    let refused = || io::Error::from(ErrorKind::PermissionDenied);
    match wanted {
        Wanted::PerfMap(pid) => open_perf_map(pid),
        Wanted::At(path, root, uid) => {
            let path = Path::new(OsStr::from_bytes(&path));
            let user = User {
                uid,
                gid: uid,
                groups: Vec::new(),
            };
            let open = || match root {
                Some(pid) => open_regular_in_root(pid, path),
                None => open_regular(path),
            };
            // Without that right we may read no more than whoever started us.
            match privileges::has(Capability::CAP_SETUID) {
                true => user.act(open).ok_or_else(refused)?,
                false => open(),
            }
        }
        Wanted::Below {
            path,
            pid,
            user: (uid, gid, groups),
        } => {
            let folder = folder.ok_or_else(refused)?;
            let path = Path::new(OsStr::from_bytes(&path));
            let open = || open_regular_beneath(folder, pid, path);
            let user = User { uid, gid, groups };
            user.act(open).ok_or_else(refused)?
        }
    }
}

/// The map that process `pid` has written, if there is one. The runtime knows itself by the id that
/// it has in its own namespace.
fn open_perf_map(pid: u32) -> io::Result<File> {
    let own = proc::inner_id(pid)?;
    let path = format!("/tmp/perf-{own}.map");
    open_own_in_root(pid, Path::new(&path))
}

fn text_of<T>(result: anyhow::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{error:#}"))
}

fn found(file: &ElfFile, layer: u16) -> anyhow::Result<Vec<FoundFunction>> {
    let layers = [Layer::Runtime, Layer::Driver, Layer::Framework];
    let layer = layers.into_iter().find(|known| *known as u16 == layer);
    let layer = layer.ok_or_else(|| anyhow::anyhow!("there is no layer of this number"))?;
    let found = functions::functions(file, layer)?;
    let sent = |function: &functions::FunctionInFile| {
        let row = FUNCTIONS.get(usize::from(function.row))?;
        Some(FoundFunction {
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
    let (name, checksum) = file.image().ok()?.file.gnu_debuglink().ok()??;
    (name.len() <= LINK_LIMIT).then(|| (name.to_vec(), checksum))
}

/// The path and the build id in a `.gnu_debugaltlink`.
fn alt_link(file: &ElfFile) -> Option<(Vec<u8>, Vec<u8>)> {
    let (path, id) = file.image().ok()?.file.gnu_debugaltlink().ok()??;
    let is_link = !path.is_empty() && !id.is_empty() && path.len() + id.len() <= LINK_LIMIT;
    is_link.then(|| (path.to_vec(), id.to_vec()))
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

/// Helpers on threads, for tests and benchmarks.
mod on_threads {
    use super::{
        AddressSpaces, FileReader, HelperHost, HostFiles, Opener, ProcessReader, StackStore,
    };

    impl Default for FileReader {
        fn default() -> Self {
            Self::new(HelperHost::Thread)
        }
    }

    impl Default for ProcessReader {
        fn default() -> Self {
            Self::new(HelperHost::Thread)
        }
    }

    impl Default for Opener {
        fn default() -> Self {
            ProcessReader::default().opener()
        }
    }

    impl Default for AddressSpaces {
        fn default() -> Self {
            Self::new(FileReader::default(), ProcessReader::default())
        }
    }

    impl Default for HostFiles {
        fn default() -> Self {
            Self::new(FileReader::default())
        }
    }

    impl Default for StackStore {
        fn default() -> Self {
            Self::new(false, FileReader::default(), ProcessReader::default())
        }
    }
}

/// Asks a reader everything about a file of these `bytes`, for tests with untrusted files; returns
/// the number of answers that are not empty.
#[doc(hidden)]
pub fn try_all(bytes: &[u8]) -> io::Result<usize> {
    let mut served = Served::default();
    served.answer(
        Request::Open(1),
        Some(gpuprobe_os::bounded::file_of(bytes)?),
    )?;
    let mut requests = vec![
        Request::Headers(1),
        Request::Rendezvous(1),
        Request::Interpreter(1),
        Request::Storage(1),
        Request::DebugLink(1),
        Request::AltLink(1),
        Request::Checksum(1),
        Request::Variable(1, "table_".to_owned()),
    ];
    requests.extend((0..3).map(|layer| Request::Functions(1, layer)));
    let addresses: Vec<_> = match served.elf(1)?.headers() {
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
        requests.push(Request::Rules(1, address));
        requests.push(Request::Symbol(1, address));
        requests.push(Request::Names(WantedNames {
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
            let answer = answer?.unwrap_or_default().bytes;
            // `None`, and an empty list.
            answers += usize::from(answer != [0]);
        }
    }
    Ok(answers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    use crate::elf::sample::{DATA, ElfSample, FUNCTION};
    use crate::elf::{Headers, Refusal};

    #[test]
    fn links_are_in_sections() {
        let debug = |bytes: &[u8]| {
            let sample = ElfSample::default().code(1, &[0]);
            debug_link(&sample.section(".gnu_debuglink", 0, bytes).parsed())
        };
        let expected = Some((b"a.debug".to_vec(), 0x0403_0201));
        assert_eq!(debug(b"a.debug\0\x01\x02\x03\x04"), expected);
        assert_eq!(
            debug_link(&ElfSample::default().code(1, &[0]).parsed()),
            None
        );
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
            let file = sample.section(".gnu_debugaltlink", 0, bytes).parsed();
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
        let open = || Some(ElfSample::default().code(0x1000, &[0xc3; 64]).file());
        let mut answer = |request, file| {
            let answer = served.answer(request, file).ok()?;
            Some(answer.map(|answer| answer.bytes))
        };
        let headers = || Request::Headers(1);
        assert_eq!(answer(headers(), None), None);
        assert_eq!(answer(Request::Open(1), None), None, "without a file");
        for close in [Request::Close(1), Request::CloseAll] {
            assert_eq!(answer(Request::Open(1), open()), Some(None));
            let found = answer(headers(), None).flatten().unwrap();
            let found: Option<Result<Headers, Refusal>> = decoded(&found);
            assert!(matches!(found, Some(Ok(_))), "{found:?}");
            assert_eq!(answer(close, None), Some(None));
            assert_eq!(answer(headers(), None), None);
        }
        answer(Request::Open(1), open());
        let layer = answer(Request::Functions(1, 99), None).flatten();
        let layer: Option<Result<Vec<FoundFunction>, String>> = decoded(&layer.unwrap());
        let why = layer.unwrap().unwrap_err();
        assert_eq!(why, "there is no layer of this number");
        let name = answer(Request::JitSymbol(1, 7), None).flatten();
        assert_eq!(name, Some(vec![0]));
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
