//! Batches that the tracing thread passes to the recording's writer thread.

use std::sync::Arc;

use super::log::LogNote;
use gpuprobe_engine::Change;
use gpuprobe_engine::launches::LaunchCount;
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::activity::Activity;
use gpuprobe_model::event::Event;

/// Approximate size of a chunk of the log, bytes.
pub(super) const LOG_BYTES: usize = 1 << 18;

/// A step of the run, in the order of the log.
#[derive(Debug)]
pub(super) enum LogStep {
    /// An event, and the number of its changes.
    Event(Event, usize),
    /// A note of the log; rare.
    Note(Box<LogNote>),
    /// A snapshot of the launch counters.
    Counted(Vec<LoggedLaunch>),
}

/// A kernel or graph with its launch counters.
#[derive(Debug)]
pub(super) struct LoggedLaunch {
    pub(super) key: RawLaunchKey,
    /// Process id in the initial PID namespace.
    pub(super) pid: u32,
    /// Mangled name, if known.
    pub(super) mangled: Option<Arc<str>>,
    pub(super) counted: LaunchCount,
}

/// A chunk of the log, decoded.
#[derive(Debug, Default)]
pub(super) struct LogBatch {
    pub(super) log: Vec<u8>,
    /// Number of log records.
    pub(super) records: u64,
    pub(super) steps: Vec<LogStep>,
    /// Changes of all events, in order.
    pub(super) changes: Vec<Change>,
    /// Approximate heap memory of steps that may be large, bytes.
    elsewhere: usize,
}

impl LogBatch {
    /// An empty batch with the capacity of `before`.
    pub(super) fn after(before: &Self) -> Self {
        Self {
            log: Vec::with_capacity(LOG_BYTES * 2),
            steps: Vec::with_capacity(before.steps.len()),
            changes: Vec::with_capacity(before.changes.len()),
            ..Self::default()
        }
    }

    pub(super) fn event(&mut self, event: Event, changes: &mut Vec<Change>) {
        if let Event::Activity(batch) = &event {
            self.elsewhere += size_of::<Activity>() * batch.activities.len();
        }
        self.records += 1;
        self.steps.push(LogStep::Event(event, changes.len()));
        self.changes.append(changes);
    }

    pub(super) fn counted(&mut self, launched: Vec<LoggedLaunch>) {
        self.elsewhere += size_of::<LoggedLaunch>() * launched.len();
        self.steps.push(LogStep::Counted(launched));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.log.is_empty() && self.steps.is_empty()
    }

    /// Approximate memory taken, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.log.len()
            + size_of::<LogStep>() * self.steps.len()
            + size_of::<Change>() * self.changes.len()
            + self.elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::activity::{ActivityBatch, ActivityRecord};

    #[test]
    fn a_batch_is_as_large_as_its_steps() {
        let mut batch = LogBatch::default();
        assert!(batch.is_empty() && batch.bytes() == 0);
        batch.log.extend(b"abc");
        assert!(!batch.is_empty() && batch.bytes() == 3);
        let activity = Activity {
            pid: 1,
            record: ActivityRecord::Kernel(gpuprobe_wire::Kernel::default()),
            name: None,
            qualifier: None,
        };
        for count in 1..=2 {
            let event = Event::Activity(ActivityBatch {
                pid: 1,
                process: 1,
                cupti_version: 0,
                is_last: false,
                activities: vec![activity.clone(); 3],
            });
            batch.event(event, &mut Vec::new());
            let one = size_of::<LogStep>() + 3 * size_of::<Activity>();
            assert_eq!(
                (batch.records, batch.bytes()),
                (count, 3 + count as usize * one)
            );
        }
        let before = batch.bytes();
        batch.counted(Vec::new());
        assert_eq!(batch.bytes(), before + size_of::<LogStep>());
        let next = LogBatch::after(&batch);
        assert!(next.is_empty() && next.log.capacity() >= 2 * LOG_BYTES);
        assert!(next.steps.capacity() >= 3 && next.bytes() == 0);
        batch.log.clear();
        assert!(!batch.is_empty());
    }
}
