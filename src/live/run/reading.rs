//! Reading of the rings and of the kernel side's counters.

use super::super::output::OutputReader;
use super::super::samples::Samples;
use super::super::sink::RingConsumer;
use super::super::stacks::StackState;
use super::Run;
use crate::host::process;
use anyhow::Result;
use gpuprobe_recording::log::LogNote;
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::records;
use std::time::Duration;
use tokio::time::Instant;

/// Interval of reads of the launch counts to free the entries of ended processes.
const MAKE_ROOM_EVERY: Duration = Duration::from_secs(1);

/// Maximum time of a read before other due work is done.
const READ_FOR: Duration = Duration::from_millis(100);
/// Maximum time of a read for a report.
const READ_FOR_REPORT: Duration = Duration::from_millis(500);
/// Interval of searches for processes whose exit event was lost.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

impl Run<'_> {
    /// Applies records that have arrived for at most [`READ_FOR`], and writes single copies.
    pub(super) fn read(&mut self) -> Result<OutputReader> {
        self.read_until(Some(std::time::Instant::now() + READ_FOR))
    }

    /// Reads for a report, for at most [`READ_FOR_REPORT`].
    pub(super) fn read_for_report(&mut self) -> Result<OutputReader> {
        self.rings.flush()?;
        self.read_until(Some(std::time::Instant::now() + READ_FOR_REPORT))
    }

    /// Reads all records that are in the rings now.
    pub(super) fn read_all(&mut self) -> Result<OutputReader> {
        self.rings.flush()?;
        self.read_until(None)
    }

    fn read_until(&mut self, until: Option<std::time::Instant>) -> Result<OutputReader> {
        let (sink, probe) = (&mut self.sink, &self.tracer.probe);
        let consumer = &mut RingConsumer::new(sink, probe);
        self.rings.read(consumer, until)?;
        if let Some(stacks) = self
            .sink
            .stacks
            .as_mut()
            .filter(|_| !self.rings.is_behind())
        {
            stacks.tidy();
        }
        self.note_incidents();
        self.sink.find_frames(&mut self.recorded_frames);
        let mut lost = self.tracer.probe.lost();
        let missed = self.sink.decoder.activity.losses();
        lost.notices += self.tracer.skipped();
        lost.undecodable = self.sink.undecodable + missed.undecodable;
        lost.activity = lost.activity.saturating_add(missed.missing);
        lost.cupti_dropped = missed.dropped;
        lost.cupti_unknown = missed.unknown;
        lost.cupti_malformed = missed.malformed;
        self.sink.state.add_left_out(&mut lost);
        lost.python += self.sink.stacks.as_ref().map_or(0, StackState::lost_python);
        lost.stacks += self.sink.stacks.as_ref().map_or(0, |stacks| stacks.unknown);
        self.lacks_ends |= lost.tasks > self.lost.tasks;
        if self.lacks_ends && (until.is_none() || self.searched.elapsed() > SEARCH_EVERY) {
            self.lacks_ends = false;
            self.searched = Instant::now();
            self.end_vanished();
        }
        if lost != self.lost {
            self.sink.input_recorder.note(LogNote::Lost(lost.by_name()));
        }
        self.lost = lost;
        for note in self.samples.iter_mut().flat_map(Samples::taken) {
            self.sink.input_recorder.note(note);
        }
        self.sink.input_recorder.pause();
        if self.write_records()? == OutputReader::Gone {
            return Ok(OutputReader::Gone);
        }
        let Some(copies) = self.sink.copies.as_mut().map(std::mem::take) else {
            return Ok(OutputReader::Reading);
        };
        let copies: Vec<_> = copies
            .iter()
            .map(|transfer| CopyReport::of(transfer, &self.clock))
            .collect();
        self.output.write_copies(&copies)
    }

    /// Writes pending GPU records.
    pub(super) fn write_records(&mut self) -> Result<OutputReader> {
        let Some(batches) = self.sink.records.as_mut().filter(|new| !new.is_empty()) else {
            return Ok(OutputReader::Reading);
        };
        let new = records::in_order(std::mem::take(batches));
        let began_ns = self.clock.monotonic_ns();
        let activities = &self.sink.state.activity;
        let lines = new
            .iter()
            .map(|one| records::line(one, activities, began_ns));
        self.output.write_records(lines)
    }

    /// Reads the launch counts if processes have ended, so that the kernel side can free their entries.
    pub(super) fn make_room(&mut self) -> Result<()> {
        if self.counted.elapsed() > MAKE_ROOM_EVERY && self.sink.state.launches.take_ends() {
            self.count_launches()?;
        }
        Ok(())
    }

    /// Reads the launch counts; the kernel side frees those of ended processes.
    pub(super) fn count_launches(&mut self) -> Result<()> {
        let (launches, input_recorder) =
            (&mut self.sink.state.launches, &mut self.sink.input_recorder);
        let filter = &self.sink.filter;
        self.counted = Instant::now();
        self.tracer.probe.launches(|key, runs, captured| {
            let count = || {
                input_recorder.count(&key, runs, captured);
                launches.set_counts(key, runs, captured)
            };
            filter.keeps_launches(key.process).unwrap_or_else(count)
        })?;
        input_recorder.counted(launches);
        self.sink.filter.counts_were_read();
        Ok(())
    }

    /// Removes processes that have ended without an exit event.
    pub(super) fn end_vanished(&mut self) {
        let ledger = &mut self.sink.state.ledger;
        let vanished: Vec<_> = ledger
            .live_processes()
            .map(|p| p.pid)
            .filter(|&pid| !process::is_alive(pid))
            .collect();
        for pid in vanished {
            self.sink.input_recorder.note(LogNote::Vanished(pid));
            ledger.end_unseen(pid);
        }
    }
}
