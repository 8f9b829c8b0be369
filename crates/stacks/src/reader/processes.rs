//! Reading memory of processes, where whoever serves it may never answer: another process does that, which may
//! hang. It copies bytes and finds variables of the environment.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::denylist::Denylist;
use super::link::{Failure, ReaderProcess};
use super::{ReaderHost, ReaderKind};
use gpuprobe_os::proc;

/// Maximum time by the clock of all reads of one [`ProcessMemory`], of which a process can make each slow:
/// userfaultfd, and files on a file system (FUSE) that it has mapped.
const MAX_READING: Duration = Duration::from_millis(200);
/// Bytes of memory that are read at once.
pub(crate) const MAX_BYTES: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
/// A question about a process.
pub(crate) enum ProcessRequest {
    /// The beginning of the command line, these variables, and which of these GPUs have device nodes.
    Facts {
        pid: u32,
        variables: Vec<String>,
        gpus: Vec<u32>,
    },
    /// Memory of process `pid` at this address.
    Memory {
        pid: u32,
        address: u64,
        size_bytes: usize,
    },
}

/// Facts from the memory and the root folder of a process, which may have put anything there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectedProcess {
    /// The beginning of its command line: words, each terminated by a zero byte.
    pub command_line: Vec<u8>,
    /// Values of the variables that were asked for.
    pub variables: Vec<Option<Vec<u8>>>,
    /// Minor numbers of the GPUs with a device node in its root.
    pub gpus: Vec<u32>,
}

/// Reads processes, by way of one that may hang.
#[derive(Clone, Debug)]
pub struct ProcessReader(Arc<Mutex<ProcessReaderState>>);

#[derive(Debug)]
struct ProcessReaderState {
    place: ReaderHost,
    link: Option<ReaderProcess>,
    denylist: Denylist<ProcessKey>,
}

/// A process, which has its number from this time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ProcessKey {
    pid: u32,
    started: u64,
}

impl ProcessKey {
    fn new(pid: u32) -> Option<Self> {
        let started = proc::stat(pid).ok()?.starttime;
        Some(Self { pid, started })
    }
}

impl ProcessReader {
    /// Starts one. Where that fails, it is tried again for each process.
    pub fn new(place: ReaderHost) -> Self {
        let mut inner = ProcessReaderState {
            place,
            link: None,
            denylist: Denylist::new(),
        };
        inner.start();
        Self(Arc::new(Mutex::new(inner)))
    }

    /// The command line of process `pid`, these variables of its environment, and those of `gpus` that have a
    /// device node in its root. Empty if it has ended, or does not let itself be read.
    pub fn facts(&self, pid: u32, variables: &[&str], gpus: &[u32]) -> InspectedProcess {
        let request = ProcessRequest::Facts {
            pid,
            variables: variables.iter().map(|&name| name.to_owned()).collect(),
            gpus: gpus.to_vec(),
        };
        let answer = ProcessKey::new(pid).and_then(|key| self.ask(key, &request));
        let facts = answer.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        facts.unwrap_or_default()
    }

    /// The memory of process `pid`.
    pub fn memory(&self, pid: u32) -> ProcessMemory {
        ProcessMemory {
            reader: self.clone(),
            key: ProcessKey::new(pid),
            left: Cell::new(MAX_READING),
        }
    }

    /// The answer, if there is one in time.
    fn ask(&self, key: ProcessKey, request: &ProcessRequest) -> Option<Vec<u8>> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.ask(key, request)
    }
}

impl ProcessReaderState {
    fn start(&mut self) {
        let link = ReaderProcess::start(ReaderKind::Processes, self.place);
        let link = link.inspect_err(|error| tracing::debug!("no process that reads: {error}"));
        self.link = link.ok();
    }

    fn ask(&mut self, key: ProcessKey, request: &ProcessRequest) -> Option<Vec<u8>> {
        if self.denylist.has(&key) {
            return None;
        }
        if self.link.is_none() {
            self.start();
        }
        let link = self.link.as_mut()?;
        let bytes = serde_json::to_vec(request).ok()?;
        if link.begin().is_err() {
            self.link = None;
            return None;
        }
        let failure = match link.ask(&bytes, None, false) {
            Ok(answer) => return Some(answer.bytes),
            Err(failure) => failure,
        };
        let pid = key.pid;
        tracing::debug!("process {pid}, {request:?}: {failure:?}");
        let is_fault = failure == Failure::TookTooLong || link.hangs();
        // The next has begun until it is asked.
        self.start();
        if is_fault && self.denylist.enter(key) {
            tracing::warn!(
                "process {pid} is not read any more: it blocks readers of its memory or of its root folder; its \
                 command line, environment, GPUs or Python frames are missing"
            );
        }
        None
    }
}

/// Memory of a process, all reads of which together have to be done in a certain time.
#[derive(Debug)]
pub struct ProcessMemory {
    reader: ProcessReader,
    key: Option<ProcessKey>,
    left: Cell<Duration>,
}

impl ProcessMemory {
    /// Reads memory at `address` into `buffer`, of a page at most, and returns the bytes read: fewer than
    /// requested at the end of a mapping; `None` if nothing is mapped there, the process has exited, or the
    /// time is over.
    pub fn read<'a>(&self, address: u64, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let (key, left) = (self.key?, self.left.get());
        if left.is_zero() {
            return None;
        }
        let request = ProcessRequest::Memory {
            pid: key.pid,
            address,
            size_bytes: buffer.len(),
        };
        let begin = Instant::now();
        let answer = self.reader.ask(key, &request);
        self.left.set(left.saturating_sub(begin.elapsed()));
        let answer = answer.filter(|bytes| !bytes.is_empty())?;
        let buffer = buffer.get_mut(..answer.len())?;
        buffer.copy_from_slice(&answer);
        Some(buffer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_read_while_there_is_time() {
        let words = [1u64, 2, 3];
        let memory = ProcessReader::default().memory(std::process::id());
        let mut buffer = [0; 16];
        let address = words[1..].as_ptr() as u64;
        let expected = [2u64, 3].map(u64::to_ne_bytes).concat();
        assert_eq!(memory.read(address, &mut buffer), Some(&expected[..]));
        assert!((Duration::from_nanos(1)..MAX_READING).contains(&memory.left.get()));
        assert_eq!(memory.read(8, &mut buffer), None);
        assert!(memory.read(address, &mut buffer).is_some());
        memory.left.set(Duration::ZERO);
        assert_eq!(memory.read(address, &mut buffer), None);
        let none = ProcessReader::default().memory(u32::MAX - 3);
        assert_eq!((none.key, none.read(address, &mut buffer)), (None, None));
    }

    #[test]
    fn a_process_on_the_list_is_not_asked_and_its_successor_is() {
        let reader = ProcessReader::default();
        let key = ProcessKey::new(std::process::id()).unwrap();
        let facts = || reader.facts(key.pid, &["PATH"], &[]);
        let earlier = ProcessKey { started: 0, ..key };
        reader.0.lock().unwrap().denylist.enter(earlier);
        assert!(!facts().command_line.is_empty());
        reader.0.lock().unwrap().denylist.enter(key);
        assert_eq!(facts(), InspectedProcess::default());
    }

    #[test]
    fn facts_are_the_command_line_and_variables() {
        let reader = ProcessReader::new(ReaderHost::default());
        let facts = reader.facts(std::process::id(), &["PATH", "no such variable"], &[]);
        let own = std::fs::read("/proc/self/cmdline").unwrap();
        assert!(!facts.command_line.is_empty() && own.starts_with(&facts.command_line));
        let path = std::env::var_os("PATH").map(std::ffi::OsString::into_encoded_bytes);
        assert_eq!(facts.variables, [path, None]);
        let none = reader.facts(u32::MAX - 3, &["PATH"], &[]);
        assert!(none.command_line.is_empty());
    }
}
