//! Snapshots for PyTorch's own viewers (`pytorch.org/memory_viz`, `torch/cuda/_memory_viz.py`), with what
//! PyTorch cannot show: memory that is not from its allocator, by the library that has it.
//!
//! The log is played once for a look at whom and what there is, once to find out what memory is PyTorch's,
//! and once for the trace of each device, which is written as it goes: what is kept is what is live, and
//! names.

mod findings;
mod follow;
mod layout;
mod names;
mod pickle;
mod snapshot;
mod survey;

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::tape::Tape;
use findings::Findings;
use follow::End;
use gpuprobe_model::stack::KnownFrames;
use gpuprobe_model::text::size;
use names::Names;
use snapshot::Snapshot;
use survey::{Deeds, Life, Survey};

/// A process of a recording, of whose memory a snapshot can be written.
pub(super) struct Subject {
    tape: Tape,
    symbols: KnownFrames,
    life: Life,
    /// Who it is, and how much there is of it.
    introduction: String,
}

/// Looks for process `pid` in the recording `file`, or for the one with most tensors.
///
/// # Errors
/// The file is no recording that was made with `--memleak`, or has nothing about such a process; it cannot
/// be read.
pub(super) fn find(file: &Path, pid: Option<u32>) -> Result<Subject> {
    let tape = Tape::open(file)?;
    let shown = file.display();
    if !tape.modes().memleak {
        bail!("{shown} was recorded without --memleak: there is no memory in it");
    }
    let survey = Survey::of(&tape)?;
    let (life, introduction) = {
        let (life, deeds, others) = survey
            .choose(pid)
            .with_context(|| format!("cannot make a snapshot of {shown}"))?;
        (life, introduction(life, deeds, others, pid))
    };
    Ok(Subject {
        tape,
        symbols: survey.symbols,
        life,
        introduction,
    })
}

impl Subject {
    /// Writes a snapshot of its memory at its end or that of the recording, with a trace of all that came
    /// before. Returns what there is to say about it, by line.
    ///
    /// # Errors
    /// The recording cannot be read, or the snapshot cannot be written.
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<Vec<String>> {
        let mut names = Names::new(self.life.pid, &self.symbols);
        let findings = follow::look(&self.tape, self.life, &mut names)?;
        let out = BufWriter::with_capacity(1 << 18, out);
        let mut snapshot = Snapshot::begin(out, self.tape.clock())?;
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
                "{} on a device that is not known are not in the snapshot",
                size(findings.nowhere)
            ));
        }
        Ok(said)
    }

    /// Writes the traces of all devices up to the last that was used, and returns what there is on these in
    /// the end.
    fn traces<'n, W: Write>(
        &'n self,
        findings: &Findings,
        names: &mut Names<'n>,
        snapshot: &mut Snapshot<W>,
    ) -> Result<Vec<(u16, End)>> {
        let mut ends = Vec::new();
        let last = findings.devices.keys().next_back();
        for device in 0..last.map_or(0, |last| last + 1) {
            snapshot.begin_trace()?;
            let mut time_ns = None;
            if findings.devices.contains_key(&device) {
                let write = |event: &_, names: &_| Ok(snapshot.event(event, names)?);
                let what = (device, findings);
                let end = follow::trace(&self.tape, self.life, names, what, write)?;
                time_ns = Some(end.time_ns);
                ends.push((device, end));
            }
            snapshot.end_trace(time_ns)?;
        }
        Ok(ends)
    }
}

fn introduction(life: Life, deeds: &Deeds, others: usize, asked: Option<u32>) -> String {
    let tensors = match deeds.tensors {
        0 => "no tensors of PyTorch were seen".to_owned(),
        tensors => format!("{tensors} tensors"),
    };
    let among = match (others, asked) {
        (0, _) | (_, Some(_)) => String::new(),
        (others, None) => format!("; {others} more have tensors (--pid)"),
    };
    let comm = &deeds.comm;
    format!(
        "snapshot of process {} ({comm}): {tensors}{among}",
        life.pid
    )
}

/// What of a device is not in the snapshot.
fn missing((device, end): &(u16, End)) -> Vec<String> {
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
