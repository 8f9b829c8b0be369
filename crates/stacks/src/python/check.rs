//! Check of an interpreter's layout against a running process.

use std::collections::HashSet;
use std::fs;

use super::interpreter::Refused;
use super::process::Running;
use crate::AddressSpaces;
use crate::helper::ProcessMemory;
use gpuprobe_model::abi::{PYTHON_NONE, RawPython};
use gpuprobe_os::proc;

/// Maximum number of threads of a process.
const MAX_THREADS: usize = 4096;
/// Maximum number of threads checked: reading one takes some 0.1 ms.
const MAX_CHECKED: usize = 64;
/// Number of attempts to read frames, which may change meanwhile.
const ATTEMPTS: usize = 8;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The interpreter is not initialised, or could not be read.
    NotBegun,
    /// The layout is right; number of threads of the process found by it.
    Threads(usize),
}

/// Checks that threads and frames of process `pid` are where the layout says.
///
/// # Errors
/// Returns a message if they are not.
pub fn check(pid: u32, running: &Running, spaces: &AddressSpaces) -> Result<Checked, Refused> {
    let memory = spaces.memory(pid);
    let reader = MemoryReader {
        memory: &memory,
        raw: &running.raw,
    };
    let layout = &running.interpreter().layout;
    let interpreter = reader.word(running.raw.runtime.wrapping_add(layout.interpreters));
    let Some(interpreter) = interpreter.filter(|&address| address != 0) else {
        return Ok(Checked::NotBegun);
    };
    let mut known = 0;
    let mut states = Vec::new();
    let tids = threads_of(pid);
    let mut next = reader.word(interpreter.wrapping_add(layout.threads));
    while let Some(state) = next.filter(|&state| state != 0 && states.len() < MAX_CHECKED) {
        states.push(state);
        let is_known = match layout.native_thread_id {
            Some(at) => {
                let tid = reader.word(state.wrapping_add(at));
                tid.is_some_and(|tid| tids.contains(&tid))
            }
            // The thread pointer, which points to itself.
            None => {
                let id = reader.member(state, running.raw.thread_id);
                id.is_some_and(|id| reader.word(id) == Some(id))
            }
        };
        known += usize::from(is_known);
        next = reader.word(state.wrapping_add(layout.next_thread));
    }
    if states.is_empty() {
        return Ok(Checked::NotBegun);
    }
    let version = layout.version;
    if known == 0 {
        return Err(format!(
            "its build has other thread offsets than an official {version}"
        ));
    }
    if !(0..ATTEMPTS).any(|_| reader.has_frames(&states)) {
        return Err(format!(
            "its build has other frame offsets than an official {version}"
        ));
    }
    Ok(Checked::Threads(known))
}

/// Thread ids of a process within its own PID namespace.
fn threads_of(pid: u32) -> HashSet<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let names = tasks.into_iter().flatten().flatten();
    let own = |task: fs::DirEntry| {
        let tid: u32 = task.file_name().to_str()?.parse().ok()?;
        Some(u64::from(proc::inner_id(tid).ok()?))
    };
    names.take(MAX_THREADS).filter_map(own).collect()
}

struct MemoryReader<'a> {
    memory: &'a ProcessMemory,
    raw: &'a RawPython,
}

impl MemoryReader<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        let bytes = self.memory.read(address, &mut word)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn member(&self, address: u64, offset: u16) -> Option<u64> {
        self.word(address.wrapping_add(u64::from(offset)))
    }

    /// Whether a thread runs a code object, or none has a frame.
    fn has_frames(&self, states: &[u64]) -> bool {
        let mut frames = states.iter().filter_map(|&state| self.innermost(state));
        let mut runs_any = false;
        let has_code = frames.any(|frame| {
            runs_any = true;
            self.runs_code(frame)
        });
        has_code || !runs_any
    }

    fn innermost(&self, state: u64) -> Option<u64> {
        let mut frame = self.member(state, self.raw.current)?;
        if self.raw.cframe != PYTHON_NONE && frame != 0 {
            frame = self.member(frame, self.raw.cframe)?;
        }
        (frame != 0).then_some(frame)
    }

    /// Whether this frame, or the one that called it if it only marks an entry, runs a code object.
    fn runs_code(&self, frame: u64) -> bool {
        let is_of_code = |frame: u64| {
            let code = self.member(frame, self.raw.code)? & !u64::from(self.raw.tag_mask);
            let is_code = self.member(code, self.raw.object_type)? == self.raw.code_type;
            is_code.then_some(())
        };
        let around = || self.member(frame, self.raw.previous).and_then(is_of_code);
        is_of_code(frame).or_else(around).is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::python::process::Interpreters;

    #[test]
    fn no_interpreter_is_found_in_a_native_process() {
        let mut spaces = AddressSpaces::default();
        let pid = std::process::id();
        spaces.refresh(pid);
        assert!(Interpreters::default().find(pid, &spaces).is_none());
        assert!(threads_of(pid).contains(&u64::from(pid)));
    }

    use gpuprobe_model::stack::ModuleId;

    use crate::python::interpreter::tests::interpreter;

    /// Structures of an interpreter, in memory of this process: words, by their index.
    struct Structures {
        words: Vec<u64>,
        minor: u8,
        tag_mask: u8,
    }

    /// Words at which the structures begin.
    const INTERPRETER: usize = 64;
    const THREADS: [usize; 3] = [128, 192, 256];
    const HOLDERS: [usize; 3] = [320, 324, 328];
    const FRAMES: [usize; 3] = [340, 360, 380];
    const CODE: usize = 400;
    const TYPE: usize = 420;

    impl Structures {
        /// An interpreter with three threads, each with a frame that runs the same code.
        fn new(minor: u8) -> Self {
            let mut all = Self {
                words: vec![0; 512],
                minor,
                tag_mask: 0,
            };
            let layout = interpreter(minor, 0..1).layout;
            let word = |bytes: u64| usize::try_from(bytes / 8).unwrap();
            all.point(word(layout.interpreters), INTERPRETER);
            all.point(INTERPRETER + word(layout.threads), THREADS[0]);
            all.point(CODE + 1, TYPE);
            let tid = u64::try_from(nix::unistd::gettid().as_raw()).unwrap();
            for (n, thread) in THREADS.into_iter().enumerate() {
                if let Some(next) = THREADS.get(n + 1) {
                    all.point(thread + 1, *next);
                }
                let current = thread + usize::from(layout.raw.current) / 8;
                match layout.native_thread_id {
                    Some(at) => {
                        all.words[thread + word(at)] = tid;
                        all.point(current, HOLDERS[n]);
                        all.point(HOLDERS[n] + usize::from(layout.raw.cframe) / 8, FRAMES[n]);
                    }
                    None => {
                        all.point(current, FRAMES[n]);
                        all.point(thread + usize::from(layout.raw.thread_id) / 8, HOLDERS[n]);
                        all.point(HOLDERS[n], HOLDERS[n]);
                    }
                }
                all.point(FRAMES[n] + usize::from(layout.raw.code) / 8, CODE);
            }
            all
        }

        fn at(&self, index: usize) -> u64 {
            self.words.as_ptr() as u64 + 8 * index as u64
        }

        /// Makes the word at `from` point to that at `to`.
        fn point(&mut self, from: usize, to: usize) {
            self.words[from] = self.at(to);
        }

        fn check(&self) -> Result<Checked, Refused> {
            let interpreter = interpreter(self.minor, 0..1);
            let raw = RawPython {
                runtime: self.at(0),
                code_type: self.at(TYPE),
                tag_mask: self.tag_mask,
                ..interpreter.layout.raw
            };
            let running = Running::sample(interpreter, ModuleId(0), raw);
            check(std::process::id(), &running, &AddressSpaces::default())
        }
    }

    #[test]
    fn threads_are_found_where_the_layout_says() {
        for minor in 10..=12 {
            let mut all = Structures::new(minor);
            assert_eq!(all.check(), Ok(Checked::Threads(3)), "{minor}");
            // The second one's id is of no thread.
            let id = match minor {
                10 => THREADS[1] + 22,
                11 => THREADS[1] + 20,
                _ => THREADS[1] + 18,
            };
            all.words[id] = 1 << 40;
            assert_eq!(all.check(), Ok(Checked::Threads(2)), "{minor}");
            for thread in THREADS {
                all.words[thread + id - THREADS[1]] = 1 << 40;
            }
            let why = all.check().unwrap_err();
            let expected = format!("other thread offsets than an official CPython 3.{minor}");
            assert!(why.contains(&expected), "{why}");
        }
    }

    #[test]
    fn an_interpreter_that_has_not_begun_has_no_threads() {
        let mut all = Structures::new(12);
        all.words[INTERPRETER + 9] = 0;
        assert_eq!(all.check(), Ok(Checked::NotBegun));
        all.words[5] = 0;
        assert_eq!(all.check(), Ok(Checked::NotBegun));
        // A list of threads that never ends.
        let mut all = Structures::new(12);
        all.point(THREADS[2] + 1, THREADS[2]);
        assert_eq!(all.check(), Ok(Checked::Threads(MAX_CHECKED)));
    }

    #[test]
    fn one_frame_runs_code_or_there_is_none() {
        for minor in [10, 12] {
            let layout = interpreter(minor, 0..1).layout;
            let code = usize::from(layout.raw.code) / 8;
            let previous = usize::from(layout.raw.previous) / 8;
            let mut all = Structures::new(minor);
            for frame in FRAMES {
                all.point(frame + code, TYPE);
            }
            let why = all.check().unwrap_err();
            assert!(why.contains("other frame offsets"), "{why}");
            // It marks an entry; the one that called it runs code.
            all.point(FRAMES[1] + previous, 440);
            all.point(440 + code, CODE);
            assert_eq!(all.check(), Ok(Checked::Threads(3)));
            all.point(440 + code, TYPE);
            assert!(all.check().is_err());
            all.point(FRAMES[2] + code, CODE);
            assert_eq!(all.check(), Ok(Checked::Threads(3)));
            let mut idle = Structures::new(minor);
            for thread in THREADS {
                idle.words[thread + usize::from(layout.raw.current) / 8] = 0;
            }
            assert_eq!(idle.check(), Ok(Checked::Threads(3)));
            let mut tagged = Structures::new(minor);
            tagged.tag_mask = 3;
            for frame in FRAMES {
                tagged.words[frame + code] |= 1;
            }
            assert_eq!(tagged.check(), Ok(Checked::Threads(3)));
        }
    }
}
