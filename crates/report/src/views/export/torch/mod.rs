//! Snapshots for PyTorch's own viewers (`pytorch.org/memory_viz`, `torch/cuda/_memory_viz.py`),
//! which also show memory that is not from PyTorch's allocator, by the library that owns it.
//!
//! The log is replayed several times: once to list processes and stacks, once to find out which
//! memory is PyTorch's, and once for the trace of each device, which is written on the way. Only
//! live memory and names are kept.

mod findings;
mod follow;
mod layout;
mod names;
mod pickle;
mod snapshot;
mod survey;

use std::io::{BufWriter, Write};

use anyhow::{Context, Result, bail};

use findings::FirstPass;
use follow::FinalState;
use gpuprobe_model::stack::KnownFrames;
use gpuprobe_model::text::size;
use gpuprobe_recording::log::LogReader;
use gpuprobe_recording::{Database, Session};
use names::StackNames;
use snapshot::Snapshot;
use survey::{Incarnation, ProcessCounts, Survey};

/// A process of a recording with memory for a snapshot.
pub(super) struct Subject<'a> {
    log: LogReader<'a>,
    symbols: KnownFrames,
    incarnation: Incarnation,
    /// Description of the process and its tensors.
    introduction: String,
}

/// Finds process `pid` in the recording `file`, or the process with the most tensors.
///
/// # Errors
///
/// Returns an error if the file cannot be read, if it is not a recording made with `--memleak`, or
/// if it has no memory of such a process.
pub(super) fn find<'a>(
    database: &'a Database,
    session: &'a Session,
    pid: Option<u32>,
) -> Result<Subject<'a>> {
    let log = LogReader::new(database, session)?;
    let shown = database.path().display();
    if !log.modes().memleak {
        bail!("{shown} was recorded without --memleak: there is no memory in it");
    }
    let survey = Survey::of(&log)?;
    let (incarnation, introduction) = {
        let (incarnation, counts, others) = survey
            .choose(pid)
            .with_context(|| format!("cannot make a snapshot of {shown}"))?;
        (incarnation, introduction(incarnation, counts, others, pid))
    };
    Ok(Subject {
        log,
        symbols: survey.symbols,
        incarnation,
        introduction,
    })
}

impl Subject<'_> {
    /// Writes a snapshot of the memory at the end of the process or of the recording, with a trace
    /// of all events before. Returns notes for the user, one per line.
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<Vec<String>> {
        let mut names = StackNames::new(self.incarnation.pid, &self.symbols);
        let findings = follow::find_torch_segments(&self.log, self.incarnation, &mut names)?;
        let out = BufWriter::with_capacity(1 << 18, out);
        let mut snapshot = Snapshot::begin(out, self.log.wall_clock())?;
        let ends = self.traces(&findings, &mut names, &mut snapshot)?;
        snapshot.begin_segments()?;
        for (device, end) in &ends {
            snapshot.segments(*device, &end.layout, &names)?;
        }
        snapshot.finish()?;
        let mut said = vec![self.introduction.clone()];
        said.extend(ends.iter().flat_map(missing));
        if findings.nowhere > 0 {
            said.push(format!(
                "{} on an unknown device are not in the snapshot",
                size(findings.nowhere)
            ));
        }
        Ok(said)
    }

    /// Writes the traces of all devices up to the last one used, and returns the final state of
    /// each.
    fn traces<'n, W: Write>(
        &'n self,
        findings: &FirstPass,
        names: &mut StackNames<'n>,
        snapshot: &mut Snapshot<W>,
    ) -> Result<Vec<(u16, FinalState)>> {
        let mut ends = Vec::new();
        let last = findings.devices.keys().next_back();
        for device in 0..last.map_or(0, |last| last + 1) {
            snapshot.begin_trace()?;
            let mut time_ns = None;
            if findings.devices.contains_key(&device) {
                let write = |event: &_, names: &_| Ok(snapshot.event(event, names)?);
                let what = (device, findings);
                let end = follow::trace(&self.log, self.incarnation, names, what, write)?;
                time_ns = Some(end.time_ns);
                ends.push((device, end));
            }
            snapshot.end_trace(time_ns)?;
        }
        Ok(ends)
    }
}

fn introduction(
    incarnation: Incarnation,
    counts: &ProcessCounts,
    others: usize,
    asked: Option<u32>,
) -> String {
    let tensors = match counts.tensors {
        0 => "no tensors of PyTorch were seen".to_owned(),
        tensors => format!("{tensors} tensors"),
    };
    let among = match (others, asked) {
        (0, _) | (_, Some(_)) => String::new(),
        (others, None) => format!("; {others} more have tensors (--pid)"),
    };
    let comm = &counts.comm;
    format!(
        "snapshot of process {} ({comm}): {tensors}{among}",
        incarnation.pid
    )
}

/// Notes on memory of a device that is not in the snapshot.
fn missing((device, end): &(u16, FinalState)) -> Vec<String> {
    let mut missing = Vec::new();
    let before = end.layout.allocated_before();
    if before > 0 {
        missing.push(format!(
            "cuda:{device}: {} in tensors from before tracing began are not in the snapshot: where they \
             are is not known",
            size(before)
        ));
    }
    if end.layout.left_out > 0 {
        missing.push(format!(
            "cuda:{device}: {} events fit to nothing that is known, and are not in the snapshot",
            end.layout.left_out
        ));
    }
    missing
}
