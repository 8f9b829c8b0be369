//! The log of a run: all records of the rings in order, and all other input of the state.
//!
//! A recording contains the log beside its tables, so that a replay runs the same code as live
//! tracing on the same input. An entry consists of a kind, the length of its content, and the
//! content.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};

use serde::{Deserialize, Serialize};
use zerocopy::FromBytes;

use gpuprobe_model::abi::{
    RawCall, RawCopy, RawDetail, RawKernel, RawLaunch, RawLaunchKey, RawNamed, RawTask, RawTensor,
    record,
};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Frame, Location, ModuleId};
use gpuprobe_model::{GpuUsage, GpuUse, UserLoss};
use gpuprobe_wire as wire;

/// Input of the state that is not a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LogNote {
    /// Identity of a process: an answer to the next record.
    Identity(u32, Identity),
    /// Name of the kernel behind a host function: an answer to the next record.
    KernelAt(u32, u64, Option<String>),
    /// Size of a device variable: an answer to the next record.
    VariableSize(u32, String, Option<u64>),
    /// Whether an address is device memory: an answer to the next record.
    OnDevice(u32, u64, Option<bool>),
    /// A process that no longer exists; its exit event was lost.
    Vanished(u32),
    /// Losses so far, by name.
    Lost(BTreeMap<String, u64>),
    /// Number of records missing from the recording so far.
    Dropped(u64),
    /// A report was printed.
    Report(Mark),
    /// A call stack of a process with its stack id; it precedes the calls with that id.
    Stack(u32, u64, CallStack),
    /// Frames of a location of a process; `true` for the innermost location of a stack.
    Frames(u32, Location, bool, Vec<Frame>),
    /// Path of a module.
    Module(ModuleId, String),
    /// Used memory of a GPU: `CLOCK_MONOTONIC` nanoseconds, GPU index, bytes.
    Used(u64, u32, u64),
    /// GPU use at the incident with this number.
    Incident(u64, GpuUse),
}

impl LogNote {
    /// Whether it is an answer to a query of the next record.
    pub(super) fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Identity(..) | Self::KernelAt(..) | Self::VariableSize(..) | Self::OnDevice(..)
        )
    }
}

/// Content of a report that is not derived from the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Wall-clock time, RFC 3339.
    pub time: String,
    /// It is the last report.
    pub is_final: bool,
    /// Time since the previous report, nanoseconds.
    pub since_last_ns: u64,
    /// Time since tracing started, nanoseconds.
    pub since_start_ns: u64,
    /// Link between host and GPUs: gigatransfers per second and lanes.
    pub link: Option<(f64, u32)>,
    /// Call stacks were traced.
    #[serde(default)]
    pub stacks: bool,
    /// Tracing was host-wide, without a process filter.
    #[serde(default)]
    pub host_wide: bool,
    /// Time of the report, `CLOCK_MONOTONIC` nanoseconds.
    #[serde(default)]
    pub now_ns: Option<u64>,
    /// GPU use according to NVML.
    pub usage: Option<GpuUsage>,
    /// Losses so far, by user and process.
    #[serde(default)]
    pub lost_by_user: Vec<UserLoss>,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum LogEntry<'a> {
    /// A record of a ring.
    Record(&'a [u8]),
    /// Launch counters of a kernel: executed launches, captured launches.
    Count(RawLaunchKey, u64, u64),
    /// Any other input of the state.
    Note(LogNote),
}

const RECORD: u8 = 1;
const COUNT: u8 = 2;
const NOTE: u8 = 3;

const HEADER: usize = 5;

fn append(log: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    // A record is at most a few thousand bytes long.
    let Ok(length) = u32::try_from(length) else {
        return;
    };
    log.push(kind);
    log.extend(length.to_le_bytes());
    parts.iter().for_each(|part| log.extend_from_slice(part));
}

/// Appends a ring record.
pub fn append_record(log: &mut Vec<u8>, bytes: &[u8]) {
    append(log, RECORD, &[bytes]);
}

/// Appends launch counters of a kernel.
pub fn append_count(log: &mut Vec<u8>, key: &RawLaunchKey, runs: u64, captured: u64) {
    let parts: [&[u8]; 6] = [
        &key.handle.to_le_bytes(),
        &key.process.to_le_bytes(),
        &key.row.to_le_bytes(),
        &key.epoch.to_le_bytes(),
        &runs.to_le_bytes(),
        &captured.to_le_bytes(),
    ];
    append(log, COUNT, &parts);
}

/// Appends a note; a note that cannot be serialized is skipped.
pub fn append_note(log: &mut Vec<u8>, note: &LogNote) {
    match serde_json::to_vec(note) {
        Ok(text) => append(log, NOTE, &[&text]),
        Err(error) => tracing::debug!("a note is not recorded: {error}"),
    }
}

/// Iterates over the entries of a log, up to the first truncated one. Entries of unknown kinds are
/// skipped.
pub fn entries(mut log: &[u8]) -> impl Iterator<Item = LogEntry<'_>> {
    std::iter::from_fn(move || {
        let (kind, content, rest) = split(log)?;
        log = rest;
        Some(decode(kind, content))
    })
    .flatten()
}

/// Number of complete entries.
pub fn count(mut log: &[u8]) -> u64 {
    let mut count = 0;
    while let Some((_, _, rest)) = split(log) {
        count += 1;
        log = rest;
    }
    count
}

fn split(log: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (header, rest) = log.split_first_chunk::<HEADER>()?;
    let [kind, length @ ..] = *header;
    let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
    let (content, rest) = rest.split_at_checked(length)?;
    Some((kind, content, rest))
}

fn decode(kind: u8, content: &[u8]) -> Option<LogEntry<'_>> {
    match kind {
        RECORD => Some(LogEntry::Record(content)),
        NOTE => serde_json::from_slice(content).ok().map(LogEntry::Note),
        COUNT => {
            let (key, rest) = RawLaunchKey::read_from_prefix(content).ok()?;
            let (runs, rest) = u64::read_from_prefix(rest).ok()?;
            let (captured, _) = u64::read_from_prefix(rest).ok()?;
            Some(LogEntry::Count(key, runs, captured))
        }
        _ => None,
    }
}

/// Version string of the record layouts; logs with another one cannot be replayed.
pub fn layout() -> String {
    format!(
        "call {} detail {} task {} kernel {} copy {} launch {} batch {}",
        size_of::<RawCall>(),
        size_of::<RawNamed>(),
        size_of::<RawTask>(),
        size_of::<RawKernel>(),
        size_of::<RawCopy>(),
        size_of::<RawLaunch>(),
        String::from_utf8_lossy(&wire::MAGIC.to_le_bytes())
    )
}

const _: () = assert!(offset_of!(RawDetail, call) == 0 && offset_of!(RawNamed, detail) == 0);

/// Offset of the function's row in a record; `None` for records without one.
pub fn row_offset(bytes: &[u8]) -> Option<usize> {
    let record_type = u16::from_ne_bytes(*bytes.first_chunk::<2>()?);
    let offset = match record_type {
        // The others begin with a call.
        record::CALL | record::DETAIL | record::NAMED => offset_of!(RawCall, row),
        record::COPY => offset_of!(RawCopy, row),
        record::TENSOR => offset_of!(RawTensor, row),
        record::KERNEL => offset_of!(RawKernel, key) + offset_of!(RawLaunchKey, row),
        record::LAUNCH => offset_of!(RawLaunch, key) + offset_of!(RawLaunchKey, row),
        _ => return None,
    };
    (offset + 2 <= bytes.len()).then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        let key = RawLaunchKey {
            handle: 5,
            process: 6,
            row: 7,
            epoch: 8,
        };
        let note = LogNote::KernelAt(1, u64::MAX, Some("k".to_owned()));
        let mut log = Vec::new();
        append_record(&mut log, b"abc");
        append_count(&mut log, &key, 9, 10);
        append_note(&mut log, &note);
        append(&mut log, 99, &[b"from a later version"]);
        append_record(&mut log, b"");
        let expected = [
            LogEntry::Record(b"abc"),
            LogEntry::Count(key, 9, 10),
            LogEntry::Note(note),
            LogEntry::Record(b""),
        ];
        assert!(entries(&log).eq(expected));
        assert_eq!(count(&log), 5);
        // Truncated: complete entries remain readable.
        log.truncate(10);
        assert_eq!(entries(&log).count(), 1);
    }

    #[test]
    fn a_row_is_where_the_kind_of_record_has_it() {
        for (kind, offset) in [
            (record::CALL, Some(2)),
            (record::DETAIL, Some(2)),
            (record::NAMED, Some(2)),
            (record::COPY, Some(2)),
            (record::TENSOR, Some(2)),
            (record::KERNEL, Some(20)),
            (record::LAUNCH, Some(28)),
            (record::PROCESS, None),
            (record::BATCH, None),
        ] {
            let mut bytes = [0; 200];
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            assert_eq!(row_offset(&bytes), offset, "{kind}");
            if let Some(offset) = offset {
                assert_eq!(row_offset(&bytes[..offset + 2]), Some(offset));
                assert_eq!(row_offset(&bytes[..offset + 1]), None);
            }
        }
        assert_eq!(row_offset(&[1]), None);
    }

    #[test]
    fn answers_are_notes_for_the_next_record() {
        for (note, is_answer) in [
            (LogNote::Identity(1, Identity::default()), true),
            (LogNote::KernelAt(1, 2, None), true),
            (LogNote::VariableSize(1, "a".to_owned(), None), true),
            (LogNote::OnDevice(1, 2, None), true),
            (LogNote::Vanished(1), false),
            (LogNote::Dropped(1), false),
            (LogNote::Used(1, 2, 3), false),
        ] {
            assert_eq!(note.is_answer(), is_answer, "{note:?}");
        }
        let expected = "call 64 detail 152 task 64 kernel 56 copy 64 launch 88 batch gpuact01";
        assert_eq!(layout(), expected);
    }

    proptest::proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(0u8.., 0..64)) {
            let _ = entries(&bytes).count();
            let _ = row_offset(&bytes);
        }
    }
}
