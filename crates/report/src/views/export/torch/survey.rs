//! First pass over a log: its processes, and the frames of their call stacks, which may follow the
//! events in the log.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use anyhow::{Result, bail};

use gpuprobe_model::event::Event;
use gpuprobe_model::stack::KnownFrames;
use gpuprobe_recording::log::{Item, LogNote, LogReader};

/// A process from its first event, or from `exec`, to its end or the next `exec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Incarnation {
    pub(super) pid: u32,
    /// Number of earlier incarnations with the same PID.
    pub(super) number: u32,
}

/// Events of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessCounts {
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
    processes: BTreeMap<Incarnation, ProcessCounts>,
    incarnations: Incarnations,
}

/// Counts the incarnations of each PID.
#[derive(Debug, Default)]
pub(super) struct Incarnations(BTreeMap<u32, u32>);

impl Incarnations {
    pub(super) fn current(&self, pid: u32) -> Incarnation {
        let number = self.0.get(&pid).copied().unwrap_or(0);
        Incarnation { pid, number }
    }

    pub(super) fn end(&mut self, pid: u32) {
        *self.0.entry(pid).or_default() += 1;
    }
}

impl Survey {
    /// Reads the log.
    pub(super) fn of(log: &LogReader) -> Result<Self> {
        let mut survey = Self::default();
        log.play(|item| {
            survey.item(item);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(survey)
    }

    fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Event(event) => self.event(event),
            Item::Note(LogNote::Module(module, path)) => {
                self.symbols.insert_module(module, &path);
            }
            Item::Note(LogNote::Frames(pid, location, is_innermost, frames)) => {
                self.symbols.insert(pid, location, is_innermost, frames);
            }
            Item::Note(LogNote::Vanished(pid)) => self.incarnations.end(pid),
            Item::Note(_) | Item::Count(..) | Item::Batch(..) => {}
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            // Tensors of other frameworks have no device.
            Event::Tensor(tensor) if tensor.device.is_some() => {
                self.counts_of(tensor.pid).tensors += u64::from(!tensor.is_free);
            }
            Event::Call(call) if call.function.op.is_memory() => {
                self.counts_of(call.pid).calls += 1;
            }
            Event::Process(task) => self.counts_of(task.pid).comm = task.comm,
            Event::Exit(task) | Event::Exec(task) => self.incarnations.end(task.pid),
            _ => {}
        }
    }

    fn counts_of(&mut self, pid: u32) -> &mut ProcessCounts {
        let incarnation = self.incarnations.current(pid);
        self.processes.entry(incarnation).or_default()
    }

    /// The process with the most tensors, or with the most calls if none has tensors; only
    /// processes with this PID, if it is given. Also returns the number of other processes with
    /// tensors.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such process.
    pub(super) fn choose(&self, pid: Option<u32>) -> Result<(Incarnation, &ProcessCounts, usize)> {
        type Process<'a> = (&'a Incarnation, &'a ProcessCounts);
        let asked = |(incarnation, _): &Process<'_>| pid.is_none_or(|pid| incarnation.pid == pid);
        let most = |(_, counts): &Process<'_>| (counts.tensors, counts.calls);
        let all = || self.processes.iter().filter(|one| most(one) > (0, 0));
        let Some((incarnation, counts)) = all().filter(asked).max_by_key(most) else {
            match pid {
                Some(pid) => bail!("process {pid} is recorded with no memory of a GPU"),
                None => bail!("no memory of a GPU is recorded"),
            }
        };
        let others = all().filter(|(other, counts)| *other != incarnation && counts.tensors > 0);
        Ok((*incarnation, counts, others.count()))
    }
}
