//! Reading memory of processes, where whoever serves it may never answer: another process does that, which may
//! hang. It copies bytes and finds variables of the environment.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::link::{Failure, ReaderProcess};
use super::timeouts::InspectTimeouts;
use super::{ReaderHost, ReaderKind};
use gpuprobe_os::proc::Status;

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
    timeouts: InspectTimeouts,
}

impl ProcessReader {
    /// Starts one. Where that fails, it is tried again for each process.
    pub fn new(place: ReaderHost) -> Self {
        let mut inner = ProcessReaderState {
            place,
            link: None,
            timeouts: InspectTimeouts::new(Instant::now()),
        };
        inner.start();
        Self(Arc::new(Mutex::new(inner)))
    }

    /// The command line of process `pid` of user `uid`, these variables of its environment, and those of
    /// `gpus` that have a device node in its root. Empty if it has ended, or does not let itself be read.
    pub fn facts(&self, pid: u32, uid: u32, variables: &[&str], gpus: &[u32]) -> InspectedProcess {
        let request = ProcessRequest::Facts {
            pid,
            variables: variables.iter().map(|&name| name.to_owned()).collect(),
            gpus: gpus.to_vec(),
        };
        let (answer, _) = self.ask(pid, uid, &request, None);
        let facts = answer.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        facts.unwrap_or_default()
    }

    /// The memory of process `pid`.
    pub fn memory(&self, pid: u32) -> ProcessMemory {
        let uid = || {
            let status = Status::of(pid).ok()?;
            let real = status.field("Uid")?.split_ascii_whitespace().next()?;
            real.parse().ok()
        };
        ProcessMemory {
            reader: self.clone(),
            pid,
            uid: uid(),
            left: Cell::new(None),
        }
    }

    /// The answer, if there is one within what is left of `left`, and what is left of it then.
    fn ask(
        &self,
        pid: u32,
        uid: u32,
        request: &ProcessRequest,
        left: Option<Duration>,
    ) -> (Option<Vec<u8>>, Duration) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.ask(pid, uid, request, left)
    }
}

impl ProcessReaderState {
    fn start(&mut self) {
        let link = ReaderProcess::start(ReaderKind::Processes, self.place);
        let link = link.inspect_err(|error| tracing::debug!("no process that reads: {error}"));
        self.link = link.ok();
    }

    fn ask(
        &mut self,
        pid: u32,
        uid: u32,
        request: &ProcessRequest,
        left: Option<Duration>,
    ) -> (Option<Vec<u8>>, Duration) {
        let Some(may) = self.timeouts.left(uid, Instant::now()) else {
            return (None, Duration::ZERO);
        };
        let left = left.map_or(may, |left| left.min(may));
        if self.link.is_none() {
            self.start();
        }
        let (Some(link), Ok(bytes)) = (&mut self.link, serde_json::to_vec(request)) else {
            return (None, left);
        };
        if link.begin().is_err() {
            self.link = None;
            return (None, left);
        }
        let begin = Instant::now();
        let answer = link.ask_within(&bytes, left);
        let took = begin.elapsed();
        self.timeouts.took(uid, took);
        if let Err(failure) = &answer {
            tracing::debug!("process {pid}, {request:?}: {failure:?}");
            // One that waits for the processor is no fault of the process's.
            let hangs = *failure != Failure::Died && !link.is_runnable();
            // The next has begun until it is asked.
            self.start();
            if hangs {
                let pause = self.timeouts.in_vain(uid, Instant::now()).as_secs();
                tracing::warn!(
                    "cannot read the memory or the root folder of process {pid}, of user {uid}: it blocks readers; \
                     its command line, environment, GPUs or Python frames are missing, and no process of this \
                     user is read for {pause} s"
                );
                return (None, Duration::ZERO);
            }
        }
        let answer = answer.ok().map(|message| message.bytes);
        (answer, left.saturating_sub(took))
    }
}

/// Memory of a process, all reads of which together have to be done in a certain time.
#[derive(Debug)]
pub struct ProcessMemory {
    reader: ProcessReader,
    pid: u32,
    uid: Option<u32>,
    left: Cell<Option<Duration>>,
}

impl ProcessMemory {
    /// Reads memory at `address` into `buffer`, of a page at most, and returns the bytes read: fewer than
    /// requested at the end of a mapping; `None` if nothing is mapped there, the process has exited, or the
    /// time is over.
    pub fn read<'a>(&self, address: u64, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let uid = self.uid?;
        if self.left.get() == Some(Duration::ZERO) {
            return None;
        }
        let request = ProcessRequest::Memory {
            pid: self.pid,
            address,
            size_bytes: buffer.len(),
        };
        let (answer, left) = self.reader.ask(self.pid, uid, &request, self.left.get());
        self.left.set(Some(left));
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
        assert!(memory.left.get().is_some_and(|left| left > Duration::ZERO));
        assert_eq!(memory.read(8, &mut buffer), None);
        assert!(memory.read(address, &mut buffer).is_some());
        memory.left.set(Some(Duration::ZERO));
        assert_eq!(memory.read(address, &mut buffer), None);
        let none = ProcessReader::default().memory(u32::MAX - 3);
        assert_eq!((none.uid, none.read(address, &mut buffer)), (None, None));
    }

    #[test]
    fn facts_are_the_command_line_and_variables() {
        let reader = ProcessReader::new(ReaderHost::default());
        let uid = nix::unistd::Uid::current().as_raw();
        let facts = reader.facts(std::process::id(), uid, &["PATH", "no such variable"], &[]);
        let own = std::fs::read("/proc/self/cmdline").unwrap();
        assert!(!facts.command_line.is_empty() && own.starts_with(&facts.command_line));
        let path = std::env::var_os("PATH").map(std::ffi::OsString::into_encoded_bytes);
        assert_eq!(facts.variables, [path, None]);
        let none = reader.facts(u32::MAX - 3, uid, &["PATH"], &[]);
        assert!(none.command_line.is_empty());
    }
}
