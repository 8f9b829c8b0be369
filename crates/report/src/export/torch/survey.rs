//! First pass over a log: its processes, and the frames of their call stacks, which may follow the
//! events in the log.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::tape::Tape;
use gpuprobe_model::abi::record;
use gpuprobe_model::event::{self, Event};
use gpuprobe_model::stack::KnownFrames;
use gpuprobe_recording::log::{LogEntry, LogNote};

/// A process from its first event, or from `exec`, to its end or the next `exec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Life {
    pub(super) pid: u32,
    /// Number of earlier lives with the same PID.
    pub(super) number: u32,
}

/// Events of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deeds {
    pub(super) comm: String,
    /// Number of tensors allocated.
    pub(super) tensors: u64,
    /// Number of calls on memory from CUDA.
    pub(super) calls: u64,
}

/// Processes and names in a log.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) symbols: KnownFrames,
    processes: BTreeMap<Life, Deeds>,
    lives: Lives,
}

/// Counts the lives of each PID.
#[derive(Debug, Default)]
pub(super) struct Lives(BTreeMap<u32, u32>);

impl Lives {
    pub(super) fn current(&self, pid: u32) -> Life {
        let number = self.0.get(&pid).copied().unwrap_or(0);
        Life { pid, number }
    }

    pub(super) fn end(&mut self, pid: u32) {
        *self.0.entry(pid).or_default() += 1;
    }
}

impl Survey {
    /// Reads the log.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(super) fn of(tape: &Tape) -> Result<Self> {
        let mut survey = Self::default();
        tape.play(|entry| {
            survey.entry(entry);
            Ok(())
        })?;
        Ok(survey)
    }

    fn entry(&mut self, entry: LogEntry<'_>) {
        match entry {
            LogEntry::Record(bytes) => self.record(bytes),
            LogEntry::Note(LogNote::Module(module, path)) => {
                self.symbols.insert_module(module, &path)
            }
            LogEntry::Note(LogNote::Frames(pid, location, is_innermost, frames)) => {
                self.symbols.insert(pid, location, is_innermost, frames);
            }
            LogEntry::Note(LogNote::Vanished(pid)) => self.lives.end(pid),
            LogEntry::Note(_) | LogEntry::Count(..) => {}
        }
    }

    fn record(&mut self, bytes: &[u8]) {
        let is_of_use = |kind: [u8; 2]| {
            let kind = u16::from_ne_bytes(kind);
            !matches!(
                kind,
                record::BATCH | record::COPY | record::LAUNCH | record::KERNEL
            )
        };
        if !bytes.first_chunk().copied().is_some_and(is_of_use) {
            return;
        }
        match event::decode(bytes) {
            // Tensors of other frameworks have no device.
            Ok(Event::Tensor(tensor)) if tensor.device.is_some() => {
                self.deeds_of(tensor.pid).tensors += u64::from(!tensor.is_free);
            }
            Ok(Event::Call(call)) if call.function.op.is_memory() => {
                self.deeds_of(call.pid).calls += 1;
            }
            Ok(Event::Process(task)) => self.deeds_of(task.pid).comm = task.comm,
            Ok(Event::Exit(task) | Event::Exec(task)) => self.lives.end(task.pid),
            _ => {}
        }
    }

    fn deeds_of(&mut self, pid: u32) -> &mut Deeds {
        let life = self.lives.current(pid);
        self.processes.entry(life).or_default()
    }

    /// The process with the most tensors, or with the most calls if none has tensors; only
    /// processes with this PID, if it is given. Also returns the number of other processes with
    /// tensors.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such process.
    pub(super) fn choose(&self, pid: Option<u32>) -> Result<(Life, &Deeds, usize)> {
        type Process<'a> = (&'a Life, &'a Deeds);
        let asked = |(life, _): &Process<'_>| pid.is_none_or(|pid| life.pid == pid);
        let most = |(_, deeds): &Process<'_>| (deeds.tensors, deeds.calls);
        let all = || self.processes.iter().filter(|one| most(one) > (0, 0));
        let Some((life, deeds)) = all().filter(asked).max_by_key(most) else {
            match pid {
                Some(pid) => bail!("process {pid} is recorded with no memory of a GPU"),
                None => bail!("no memory of a GPU is recorded"),
            }
        };
        let others = all().filter(|(other, deeds)| *other != life && deeds.tensors > 0);
        Ok((*life, deeds, others.count()))
    }
}
