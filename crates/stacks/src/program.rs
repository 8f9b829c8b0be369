//! The helper program: answers what [`crate::helper`] asks.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;

use object::Object;

use crate::AddressSpaces;
use crate::elf_file::ElfFile;
use crate::functions;
use crate::helper::protocol::{
    DebugLinks, InspectedProcess, Request, SymbolName, Wanted, WantedNames, decoded, encoded,
};
use crate::helper::{
    ALL_ARE_TRUSTED, ARGUMENT, FileReader, HelperHost, MAX_BYTES, Opener, ProcessReader, Role,
};
use crate::python::Interpreter;
use crate::store::StackStore;
use crate::symbols::debug_info::{DebugInfo, names_at};
use crate::symbols::perf_map::PerfMap;
use crate::symbols::variable;
use gpuprobe_os::channel::Channel;
use gpuprobe_os::confined;
use gpuprobe_os::privileges::{AS_OTHERS, Capability, LOOK, User};
use gpuprobe_os::regular::{
    open_own_in_root, open_regular, open_regular_beneath, open_regular_in_root,
};
use gpuprobe_os::{kernel, memory, mounts, privileges, proc};

/// Helpers on threads of this process, for tests and benchmarks.
#[doc(hidden)]
pub const ON_THREADS: HelperHost = HelperHost::Thread(serve);

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
    match role {
        Role::Reader => confined::confine(16 << 20, &[LOOK, AS_OTHERS])?,
        Role::Parser => confined::confine(160 << 20, &[])?,
    }
    serve(&Channel(quick.into()), Channel(slow.into()));
    Ok(())
}

/// Answers on both lanes, until nobody asks any more.
fn serve(quick: &Channel, slow: Channel) {
    let thread = thread::Builder::new().spawn(move || serve_lane(&slow));
    if thread.is_ok() {
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
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) file: Option<File>,
}

/// The files that were sent on a lane, by number.
#[derive(Default)]
pub(crate) struct Served(HashMap<u64, SentFile>);

/// A file, and what was read of it.
struct SentFile {
    file: File,
    elf: OnceCell<Rc<ElfFile>>,
    debug_info: OnceCell<Option<DebugInfo>>,
    perf_map: PerfMap,
}

impl SentFile {
    fn new(file: File) -> Self {
        Self {
            file,
            elf: OnceCell::new(),
            debug_info: OnceCell::new(),
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
    pub(crate) fn answer(
        &mut self,
        request: Request,
        file: Option<File>,
    ) -> io::Result<Option<Answer>> {
        let bytes = match request {
            Request::Open(number) => {
                let file = file.ok_or(ErrorKind::InvalidInput)?;
                self.0.insert(number, SentFile::new(file));
                return Ok(None);
            }
            Request::Close(number) => {
                self.0.remove(&number);
                return Ok(None);
            }
            Request::CloseAll => {
                self.0.clear();
                return Ok(None);
            }
            Request::File(wanted) => {
                let file = open(wanted, file.as_ref()).ok();
                let bytes = Vec::new();
                return Ok(Some(Answer { bytes, file }));
            }
            Request::Process {
                pid,
                variables,
                gpus,
            } => encoded(&inspected(pid, &variables, &gpus)),
            Request::Memory {
                pid,
                address,
                size_bytes,
            } => {
                let mut buffer = [0; MAX_BYTES];
                let buffer = &mut buffer[..MAX_BYTES.min(size_bytes)];
                encoded(&memory::read(pid, address, buffer).unwrap_or_default())
            }
            Request::Headers(number) => encoded(&self.elf(number)?.headers()),
            Request::Functions(number) => {
                encoded(&text_of(functions::functions(self.elf(number)?)))
            }
            Request::Rendezvous(number) => {
                encoded(&text_of(functions::rendezvous(self.elf(number)?)))
            }
            Request::Rules(number, address) => encoded(&self.elf(number)?.rules(address)),
            Request::Symbol(number, address) => {
                let file = self.elf(number)?;
                encoded(&file.symbol(address, file))
            }
            Request::Variable(number, name) => encoded(&variable::size(self.elf(number)?, &name)),
            Request::Interpreter(number) => encoded(&Interpreter::of(self.elf(number)?)),
            Request::Links(number) => encoded(&links(self.elf(number)?)),
            Request::Checksum(number) => encoded(&crc32fast::hash(self.elf(number)?)),
            Request::Names(names) => encoded(&self.names(&names)?),
            Request::JitSymbol(number, address) => {
                let file = self.0.get_mut(&number).ok_or(ErrorKind::InvalidInput)?;
                encoded(&file.perf_map.name(&file.file, address))
            }
        };
        Ok(Some(Answer { bytes, file: None }))
    }

    fn file(&self, number: u64) -> io::Result<&SentFile> {
        let file = self.0.get(&number);
        file.ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    pub(crate) fn elf(&self, number: u64) -> io::Result<&Rc<ElfFile>> {
        self.file(number).map(SentFile::elf)
    }

    fn names(&self, names: &WantedNames) -> io::Result<Option<Vec<SymbolName>>> {
        let module = self.elf(names.module)?;
        let supplement = names.supplement.map(|number| self.elf(number));
        let supplement = supplement.transpose()?;
        for number in names.debug.iter().chain([&names.module]) {
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

/// The links in a file to those with its debugging information.
fn links(file: &ElfFile) -> DebugLinks {
    let Ok(image) = file.image() else {
        return DebugLinks::default();
    };
    let debug = image.file.gnu_debuglink().ok().flatten();
    let alt = image.file.gnu_debugaltlink().ok().flatten();
    let alt = alt.filter(|(path, id)| !path.is_empty() && !id.is_empty());
    DebugLinks {
        debug: debug.map(|(name, checksum)| (name.to_vec(), checksum)),
        alt: alt.map(|(path, id)| (path.to_vec(), id.to_vec())),
    }
}

impl Default for FileReader {
    fn default() -> Self {
        Self::new(ON_THREADS)
    }
}

impl Default for ProcessReader {
    fn default() -> Self {
        Self::new(ON_THREADS)
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

impl Default for StackStore {
    fn default() -> Self {
        Self::new(false, FileReader::default(), ProcessReader::default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    use crate::elf::sample::ElfSample;
    use crate::elf::{Headers, Refusal};

    #[test]
    fn links_are_in_sections() {
        let links = |section, bytes: &[u8]| {
            let sample = ElfSample::default().code(1, &[0]);
            let links = links(&sample.section(section, 0, bytes).parsed());
            (links.debug, links.alt)
        };
        let expected = Some((b"a.debug".to_vec(), 0x0403_0201));
        let debug = links(".gnu_debuglink", b"a.debug\0\x01\x02\x03\x04");
        assert_eq!(debug, (expected, None));
        for (bytes, expected) in [
            (
                &b"b.dwz\0\x01\x02"[..],
                Some((b"b.dwz".to_vec(), vec![1, 2])),
            ),
            (b"\0\x01\x02", None),
            (b"b.dwz\0", None),
            (b"b.dwz", None),
        ] {
            let found = links(".gnu_debugaltlink", bytes);
            assert_eq!(found, (None, expected), "{bytes:?}");
        }
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
        let name = answer(Request::JitSymbol(1, 7), None).flatten();
        assert_eq!(name, Some(vec![0]));
    }
}
