//! The helper program: answers what [`crate::helper`] asks.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::iter;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use lru::LruCache;
use object::Object;
use serde_bytes::ByteBuf;

use crate::elf_file::ElfFile;
use crate::functions;
use crate::helper::channel::Channel;
use crate::helper::protocol::{
    DebugLinks, InspectedProcess, Request, SymbolName, Wanted, decoded, encoded,
};
use crate::helper::{
    ALL_ARE_TRUSTED, ARGUMENT, FileReader, FileVersion, HelperHost, MAX_BYTES, MAX_RANGES_BYTES,
    ProcessReader, Role, memory,
};
use crate::python::Interpreter;
use crate::symbols::debug_info::{DebugInfo, names_at};
use crate::symbols::perf_map::PerfMap;
use crate::symbols::variable;
use gpuprobe_os::confined;
use gpuprobe_os::privileges::{AS_OTHERS, Capability, LOOK, User};
use gpuprobe_os::regular::{
    open_own_in_root, open_regular, open_regular_beneath, open_regular_in_root,
};
use gpuprobe_os::{mounts, privileges, proc};

/// How often memory is read that changes meanwhile.
const RANGES_TRIES: usize = 16;
/// How long a file is kept of which nobody asks anything.
const UNUSED_FOR: Duration = Duration::from_secs(30);
/// Files that are kept of a lane.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

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
    let quick = Channel(quick.into());
    match role {
        Role::Reader => {
            confined::confine(16 << 20, &[LOOK, AS_OTHERS])?;
            quick.send(&[], &[])?;
            serve_lane(&quick);
        }
        Role::Parser => {
            confined::confine(160 << 20, &[])?;
            serve(&quick, Channel(slow.into()));
        }
    }
    Ok(())
}

/// Says that it has begun, and answers on both lanes, until nobody asks any more.
fn serve(quick: &Channel, slow: Channel) {
    if quick.send(&[], &[]).is_ok() {
        let thread = thread::Builder::new().spawn(move || serve_lane(&slow));
        if thread.is_ok() {
            serve_lane(quick);
        }
    }
}

fn serve_lane(channel: &Channel) {
    let mut served = Served::default();
    loop {
        let waited = channel.wait(Some(Instant::now() + UNUSED_FOR));
        if waited.is_err_and(|error| error.kind() == ErrorKind::TimedOut) {
            served.close_unused();
            continue;
        }
        let Ok(message) = channel.receive(true, None) else {
            return;
        };
        let request = decoded(&message.bytes);
        let answer = request.map(|request| served.answer(request, &message.files));
        let Some(Ok((answer, file))) = answer else {
            return;
        };
        if channel.send(&answer, file.as_ref().as_slice()).is_err() {
            return;
        }
    }
}

/// The files that were lately asked about on a lane.
pub(crate) struct Served(LruCache<FileVersion, Rc<SentFile>>);

impl Default for Served {
    fn default() -> Self {
        Self(LruCache::new(MAX_FILES))
    }
}

/// What was read of a file.
struct SentFile {
    used: Cell<Instant>,
    elf: Rc<ElfFile>,
    debug_info: OnceCell<io::Result<Option<DebugInfo>>>,
    perf_map: RefCell<PerfMap>,
}

impl SentFile {
    fn new(file: &File) -> Self {
        Self {
            used: Cell::new(Instant::now()),
            elf: Rc::new(ElfFile::of(file)),
            debug_info: OnceCell::new(),
            perf_map: RefCell::default(),
        }
    }

    fn debug_info(&self, supplement: Option<&Self>) -> io::Result<Option<&DebugInfo>> {
        let read = || DebugInfo::of(&self.elf, supplement.map(|file| &file.elf));
        let read = self.debug_info.get_or_init(read).as_ref();
        read.map(Option::as_ref)
            .map_err(|error| error.kind().into())
    }
}

impl Served {
    /// The answer about these files, and a file that comes with it.
    pub(crate) fn answer(
        &mut self,
        request: Request,
        files: &[File],
    ) -> io::Result<(Vec<u8>, Option<File>)> {
        self.close_unused();
        let first = files.first();
        let mut elf = || {
            let file = first.ok_or(ErrorKind::InvalidInput)?;
            self.sent(file, None).map(|sent| sent.elf.clone())
        };
        let bytes = match request {
            Request::File(wanted) => return Ok((encoded(&()), open(wanted, first).ok())),
            Request::Process(pid, variables, gpus) => encoded(&inspected(pid, &variables, &gpus)),
            Request::Memory(pid, address, size_bytes) => {
                let mut buffer = [0; MAX_BYTES];
                let buffer = &mut buffer[..MAX_BYTES.min(size_bytes)];
                encoded(&memory::read(pid, address, buffer).unwrap_or_default())
            }
            Request::Ranges(pid, ranges, ends) => {
                let read = || memory::read_all(pid, &ranges, MAX_RANGES_BYTES);
                let mut tries = iter::repeat_with(read).take(RANGES_TRIES);
                let is_same = |read: &Vec<Vec<u8>>| {
                    let last = read.len().saturating_sub(ends);
                    read.iter().take(ends).eq(&read[last..])
                };
                let read = tries.find(is_same).unwrap_or_else(read);
                encoded(&read.into_iter().map(ByteBuf::from).collect::<Vec<_>>())
            }
            Request::Headers => encoded(&elf()?.headers()),
            Request::Functions => encoded(&text_of(functions::functions(&*elf()?))),
            Request::Rendezvous => encoded(&text_of(functions::rendezvous(&*elf()?))),
            Request::Rules(address) => encoded(&elf()?.rules(address)),
            Request::Symbol(offset) => {
                let file = elf()?;
                let headers = file.headers().ok();
                let address = headers.and_then(|it| it.segments.address_of(offset));
                encoded(&address.and_then(|address| file.symbol(address, &file)))
            }
            Request::Variable(name) => encoded(&variable::size(&*elf()?, &name)),
            Request::Address(name) => {
                let file = elf()?;
                let image = file.image().ok();
                encoded(&image.and_then(|image| functions::address_of(&image, &name)))
            }
            Request::Interpreter => encoded(&Interpreter::of(&*elf()?)),
            Request::Links => encoded(&links(&*elf()?)),
            Request::IsMeant(id, checksum) => encoded(&is_meant(&*elf()?, id, checksum)),
            Request::Names(address, with_details) => {
                encoded(&self.names(files, address, with_details)?)
            }
            Request::JitSymbol(number, address) => {
                let file = first.ok_or(ErrorKind::InvalidInput)?;
                let sent = self.sent(file, Some(number))?;
                encoded(&sent.perf_map.borrow_mut().name(file, address))
            }
        };
        Ok((bytes, None))
    }

    /// What is known of this version of a file, or of one that grows and has this `number`.
    fn sent(&mut self, file: &File, number: Option<u64>) -> io::Result<Rc<SentFile>> {
        let version = FileVersion::of(&file.metadata()?);
        let version = number.map_or(version, |number| version.growing(number));
        let Self(files) = self;
        let sent = files.get_or_insert(version, || Rc::new(SentFile::new(file)));
        sent.used.set(Instant::now());
        Ok(sent.clone())
    }

    /// Closes the files that nobody has asked about for a while: they may be of a container that has ended.
    fn close_unused(&mut self) {
        let Self(files) = self;
        while let Some((_, file)) = files.peek_lru()
            && file.used.get().elapsed() >= UNUSED_FOR
        {
            files.pop_lru();
        }
    }

    fn names(
        &mut self,
        files: &[File],
        address: u64,
        with_details: bool,
    ) -> io::Result<Option<Vec<SymbolName>>> {
        let sent = files.iter().map(|file| self.sent(file, None));
        let files = sent.collect::<io::Result<Vec<_>>>()?;
        let [module, better, rest @ ..] = &files[..] else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let supplement = rest.first().map(|file| &**file);
        for file in [better, module] {
            let debug_info = match with_details {
                true => file.debug_info(supplement)?,
                false => None,
            };
            let found = names_at(&file.elf, debug_info, &module.elf, address);
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
    let (path, pid, (uid, gid, groups)) = match wanted {
        Wanted::PerfMap(pid) => return open_perf_map(pid),
        Wanted::At(path, pid, user) => (path, pid, user),
    };
    let path = Path::new(OsStr::from_bytes(&path));
    let open = || match (pid, folder) {
        (Some(pid), Some(folder)) => open_regular_beneath(folder, pid, path),
        (Some(pid), None) => open_regular_in_root(pid, path),
        (None, _) => open_regular(path),
    };
    // Without that right we may read no more than whoever started us; lines are shown to others.
    if folder.is_none() && !privileges::has(Capability::CAP_SETUID) {
        return open();
    }
    let opened = User { uid, gid, groups }.act(open);
    opened.ok_or(ErrorKind::PermissionDenied)?
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
    DebugLinks {
        debug: debug.map(|(name, checksum)| (name.to_vec(), checksum)),
        alt: alt.map(|(path, id)| (path.to_vec(), id.to_vec())),
    }
}

/// Whether a file is the one with this build id or, where one of both has none, with this checksum.
fn is_meant(file: &ElfFile, id: Option<Vec<u8>>, checksum: Option<u32>) -> bool {
    let Ok(headers) = file.headers() else {
        return false;
    };
    match (id, &headers.build_id) {
        (Some(own), Some(other)) => own == *other,
        _ => checksum.is_some_and(|checksum| checksum == crc32fast::hash(file)),
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    use crate::AddressSpaces;
    use crate::elf::sample::ElfSample;
    use crate::elf::{Headers, Refusal};
    use crate::store::StackStore;

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
            (b"b.dwz", None),
        ] {
            let found = links(".gnu_debugaltlink", bytes);
            assert_eq!(found, (None, expected), "{bytes:?}");
        }
    }

    #[test]
    fn files_are_kept_for_a_while() {
        let mut served = Served::default();
        let file = ElfSample::default().code(0x1000, &[0xc3; 64]).file();
        let mut answer = |request, is_there: bool| {
            let files = if is_there {
                std::slice::from_ref(&file)
            } else {
                &[]
            };
            let answer = served.answer(request, files);
            Some((answer.ok()?.0, served.0.len()))
        };
        assert_eq!(answer(Request::Headers, false), None);
        for _ in 0..2 {
            let (found, known) = answer(Request::Headers, true).unwrap();
            let found: Option<Result<Headers, Refusal>> = decoded(&found);
            assert!(matches!(found, Some(Ok(_))), "{found:?}");
            assert_eq!(known, 1);
        }
        let name = answer(Request::JitSymbol(1, 7), true).unwrap();
        assert_eq!(name, (vec![0], 2));
        assert_eq!(answer(Request::JitSymbol(1, 7), true), Some(name));
        let past = Instant::now().checked_sub(UNUSED_FOR).unwrap();
        for (_, sent) in served.0.iter().rev().take(1) {
            sent.used.set(past);
        }
        served.close_unused();
        assert_eq!(served.0.len(), 1);
    }

    #[test]
    fn a_file_is_meant_by_its_build_id_or_else_by_its_checksum() {
        let sample = |id: &[u8]| ElfSample::default().code(1, &[0]).build_id(id).parsed();
        let (plain, with_id) = (ElfSample::default().code(1, &[0]).parsed(), sample(&[1; 8]));
        let checksums = [&plain, &with_id].map(|file| Some(crc32fast::hash(file)));
        for (file, id, checksum, expected) in [
            (&plain, None, checksums[0], true),
            (&plain, None, checksums[1], false),
            (&plain, None, None, false),
            (&plain, Some(vec![1; 8]), checksums[0], true),
            (&plain, Some(vec![1; 8]), None, false),
            (&with_id, Some(vec![1; 8]), None, true),
            (&with_id, Some(vec![2; 8]), checksums[1], false),
            (&with_id, None, checksums[1], true),
        ] {
            assert_eq!(is_meant(file, id, checksum), expected);
        }
    }
}
