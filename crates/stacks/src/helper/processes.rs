//! Asking the reader about processes, whose memory and files may be such that it hangs, and for files.

use std::cell::Cell;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;

use super::client::{Failure, Helper, HelperHost, Subject};
use super::protocol::{InspectedProcess, Request, Wanted};
use super::{Lane, MAX_RANGES_BYTES, Role};
use gpuprobe_os::proc;

/// Maximum time by the clock of all reads of one [`ProcessMemory`], of which a process can make each slow:
/// userfaultfd, and files on a file system (FUSE) that it has mapped.
const MAX_READING: Duration = Duration::from_millis(200);

/// Has processes read by the reader, which may hang.
#[derive(Clone, Debug)]
pub struct ProcessReader(Arc<Helper>);

impl ProcessReader {
    /// Starts a reader. Where that fails, it is tried again for each process.
    pub fn new(host: HelperHost) -> Self {
        Self(Helper::start(Role::Reader, host))
    }

    /// The command line of process `pid`, these variables of its environment, and those of `gpus` that have a
    /// device node in its root. Empty if it has ended, or does not let itself be read.
    pub fn facts(&self, pid: u32, variables: &[&str], gpus: &[u32]) -> InspectedProcess {
        let variables = variables.iter().map(|&name| name.to_owned()).collect();
        let request = Request::Process(pid, variables, gpus.to_vec());
        let answer = subject(pid).and_then(|it| self.ask(Some(it), None, &request));
        answer.map(|(facts, _)| facts).unwrap_or_default()
    }

    /// A file at a path that leads through folders of others, where whoever serves them may never answer, as the user
    /// whose file it is; if it could be opened in time. These are only files that wait for nobody
    /// ([`gpuprobe_os::mounts`]). One below a folder comes with that.
    pub fn open(&self, wanted: &Wanted, folder: Option<&File>) -> Option<File> {
        // Of a process, where it can be slow at will.
        let subject = match wanted {
            Wanted::At(_, None, _) => None,
            Wanted::PerfMap(pid) | Wanted::At(_, Some(pid), _) => subject(*pid),
        };
        let request = Request::File(wanted.clone());
        let ((), file) = self.ask(subject, folder, &request)?;
        file
    }

    /// The memory of process `pid`, if its reads take no longer together than 200 ms.
    pub fn memory(&self, pid: u32) -> ProcessMemory {
        ProcessMemory {
            reader: self.clone(),
            pid,
            subject: subject(pid),
            left: Cell::new(MAX_READING),
        }
    }

    /// The answer, if there is one in time. If not, it is the fault of process `subject`, which is not read any more.
    fn ask<T: DeserializeOwned>(
        &self,
        subject: Option<Subject>,
        folder: Option<&File>,
        request: &Request,
    ) -> Option<(T, Option<File>)> {
        let (subjects, files) = (subject.as_slice(), folder.as_slice());
        let answer = self.0.ask(Lane::Quick, subjects, files, request);
        answer.unwrap_or_else(|failure| {
            if let Some(Subject::Process { pid, .. }) = subject
                && failure != Failure::NotNow
            {
                tracing::warn!(
                    "process {pid} is not read any more: it blocks readers of its memory or of its root folder; its \
                     command line, environment, GPUs or Python frames are missing"
                );
            }
            None
        })
    }
}

fn subject(pid: u32) -> Option<Subject> {
    let started = proc::stat(pid).ok()?.starttime;
    Some(Subject::Process { pid, started })
}

/// Memory of a process, all reads of which together have to be done in a certain time.
#[derive(Debug)]
pub struct ProcessMemory {
    reader: ProcessReader,
    pid: u32,
    subject: Option<Subject>,
    left: Cell<Duration>,
}

impl ProcessMemory {
    /// Reads memory at `address` into `buffer`, of a page at most, and returns the bytes read: fewer than
    /// requested at the end of a mapping; `None` if nothing is mapped there, the process has exited, or the
    /// time is over.
    pub fn read<'a>(&self, address: u64, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let answer: Vec<u8> = self.ask(&Request::Memory(self.pid, address, buffer.len()))?;
        let buffer = buffer.get_mut(..answer.len())?;
        buffer.copy_from_slice(&answer);
        (!answer.is_empty()).then_some(buffer)
    }

    /// Reads memory at these addresses, so many bytes of each, and no more than [`MAX_RANGES_BYTES`] in all: fewer at the
    /// end of a mapping. `None` if the process has exited, or the time is over. It is read some times, until it is the same
    /// in the first and the last so many ranges.
    fn read_all(&self, ranges: &[(u64, usize)], ends: usize) -> Option<Vec<ByteBuf>> {
        let read: Vec<ByteBuf> = self.ask(&Request::Ranges(self.pid, ranges.to_vec(), ends))?;
        (read.len() == ranges.len()).then_some(read)
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request) -> Option<T> {
        let left = self.left.get();
        if self.subject.is_none() || left.is_zero() {
            return None;
        }
        let begin = Instant::now();
        let answer = self.reader.ask(self.subject, None, request);
        self.left.set(left.saturating_sub(begin.elapsed()));
        answer.map(|(answer, _)| answer)
    }
}

/// An address, and a number of words.
pub(crate) type Range = (u64, usize);

/// Memory of a process, in words of eight bytes.
pub(crate) trait Words {
    /// The words at these addresses, so many of each: fewer at the end of a mapping. `None` if the time is over.
    fn read(&self, ranges: &[Range]) -> Option<Vec<Vec<u64>>>;

    /// The same, read some times, if it is little: until it is the same in the first and the last so many ranges.
    fn read_at_rest(&self, ranges: &[Range], ends: usize) -> Option<Vec<Vec<u64>>> {
        let _ = ends;
        self.read(ranges)
    }
}

impl Words for ProcessMemory {
    fn read(&self, ranges: &[Range]) -> Option<Vec<Vec<u64>>> {
        self.read_at_rest(ranges, 0)
    }

    fn read_at_rest(&self, ranges: &[Range], ends: usize) -> Option<Vec<Vec<u64>>> {
        let piece = MAX_RANGES_BYTES / 8;
        let pieces = ranges.iter().enumerate().flat_map(|(range, &(at, words))| {
            let starts = (0..words).step_by(piece);
            starts.map(move |start| {
                (
                    range,
                    at.wrapping_add(start as u64 * 8),
                    piece.min(words - start) * 8,
                )
            })
        });
        let pieces: Vec<_> = pieces.collect();
        let mut all = vec![Vec::new(); ranges.len()];
        let mut rest = &pieces[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(_, _, size)| {
                bytes += size;
                bytes <= MAX_RANGES_BYTES
            });
            let (some, behind) = rest.split_at(fits.count());
            let wanted: Vec<_> = some.iter().map(|&(_, at, size)| (at, size)).collect();
            let ends = if some.len() == ranges.len() { ends } else { 0 };
            for (&(range, ..), read) in some.iter().zip(self.read_all(&wanted, ends)?) {
                let words = read.as_chunks::<8>().0.iter();
                all[range].extend(words.map(|word| u64::from_le_bytes(*word)));
            }
            rest = behind;
        }
        Some(all)
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
        assert_eq!(
            (none.subject, none.read(address, &mut buffer)),
            (None, None)
        );
    }

    #[test]
    fn a_process_on_the_list_is_not_asked_and_its_successor_is() {
        let reader = ProcessReader::default();
        let pid = std::process::id();
        let facts = || reader.facts(pid, &["PATH"], &[]);
        let fail = |subject| {
            let request = Request::File(Wanted::PerfMap(pid));
            reader.ask::<u64>(Some(subject), None, &request)
        };
        assert!(fail(Subject::Process { pid, started: 0 }).is_none());
        assert!(!facts().command_line.is_empty());
        assert!(fail(subject(pid).unwrap()).is_none());
        assert_eq!(facts(), InspectedProcess::default());
    }

    #[test]
    fn facts_are_the_command_line_and_variables() {
        let reader = ProcessReader::default();
        let facts = reader.facts(std::process::id(), &["PATH", "no such variable"], &[]);
        let own = std::fs::read("/proc/self/cmdline").unwrap();
        assert!(!facts.command_line.is_empty() && own.starts_with(&facts.command_line));
        let path = std::env::var_os("PATH").map(std::ffi::OsString::into_encoded_bytes);
        assert_eq!(facts.variables, [path, None]);
        let none = reader.facts(u32::MAX - 3, &["PATH"], &[]);
        assert!(none.command_line.is_empty());
    }
}
