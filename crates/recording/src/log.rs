//! The log of a run: all events in order, and all other input of the state.
//!
//! A recording contains the log beside its tables, so that a replay runs the same code as live
//! tracing on the same input. An entry consists of a kind, the length of its content, and the
//! content: an event in postcard's encoding, a batch of a collector as it was sent, launch
//! counters, or a note as JSON. None of them depends on the layouts of the BPF side.

mod raw;
mod reader;

use zerocopy::{FromBytes, IntoBytes};

use gpuprobe_model::abi::{RawBatch, RawLaunchKey, record};
use gpuprobe_model::event::Event;

pub use crate::source::{Item, LogNote, Mark};
pub use raw::item_of_record;
pub use reader::{LOG, LogReader};

/// Version of the encoding of events. Postcard writes neither names nor lengths: fields and variants
/// of [`Event`] may change only with another version, and with a decoder for this one. A number may be
/// added as the last field of an event: it is 0 in logs that do not have it. A variant may be added behind those that
/// are written: these logs have none of it.
pub const VERSION: &str = "1";

/// A record of the BPF side of 0.2.0; it is no longer written.
const RECORD: u8 = 1;
const COUNT: u8 = 2;
const NOTE: u8 = 3;
const EVENT: u8 = 4;
const BATCH: u8 = 5;

const HEADER: usize = 5;

/// Appends an entry with the content that `write` adds to the log, or none if it fails.
fn append(log: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) {
    let begin = log.len();
    log.push(kind);
    log.extend([0; HEADER - 1]);
    let written = write(log);
    // The longest, a batch, has a few hundred thousand bytes.
    let length = u32::try_from(log.len() - begin - HEADER);
    match (written, length) {
        (Some(()), Ok(length)) => {
            log[begin + 1..begin + HEADER].copy_from_slice(&length.to_le_bytes());
        }
        _ => log.truncate(begin),
    }
}

/// Appends an event; `sent` is the batch that it was decoded from, if it is one.
pub fn append_event(log: &mut Vec<u8>, event: &Event, sent: Option<(&RawBatch, &[u8])>) {
    match sent {
        Some((raw, batch)) => append(log, BATCH, |log| {
            log.extend(raw.tgid.to_le_bytes());
            log.extend(raw.process.to_le_bytes());
            log.extend(raw.lost.to_le_bytes());
            log.extend_from_slice(batch);
            Some(())
        }),
        None => append(log, EVENT, |log| postcard::to_io(event, log).ok().map(drop)),
    }
}

/// Appends launch counters of a kernel.
pub fn append_count(log: &mut Vec<u8>, key: &RawLaunchKey, runs: u64, captured: u64) {
    append(log, COUNT, |log| {
        log.extend(key.as_bytes());
        log.extend(runs.to_le_bytes());
        log.extend(captured.to_le_bytes());
        Some(())
    });
}

/// Appends a note; a note that cannot be serialized is skipped.
pub fn append_note(log: &mut Vec<u8>, note: &LogNote) {
    append(log, NOTE, |log| serde_json::to_writer(log, note).ok());
}

/// Iterates over the items of a log, up to the first truncated entry. Functions have the rows that
/// `rows` gives for those of the log; items of other functions, and of unknown kinds, are skipped.
pub fn items(mut log: &[u8], rows: impl Fn(u16) -> Option<u16>) -> impl Iterator<Item = Item<'_>> {
    std::iter::from_fn(move || {
        let (kind, content, rest) = split(log)?;
        log = rest;
        Some(decode(kind, content, &rows))
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

fn decode(kind: u8, content: &[u8], rows: impl Fn(u16) -> Option<u16>) -> Option<Item<'_>> {
    match kind {
        EVENT => {
            let event = postcard::from_bytes::<Event>(content);
            let event = event.or_else(|_| postcard::from_bytes(&[content, &[0]].concat()));
            event.ok()?.with_rows(rows).map(Item::Event)
        }
        BATCH => {
            let (tgid, rest) = u32::read_from_prefix(content).ok()?;
            let (process, rest) = u32::read_from_prefix(rest).ok()?;
            let (lost, batch) = u64::read_from_prefix(rest).ok()?;
            let raw = RawBatch {
                record_type: record::BATCH,
                reserved: 0,
                tgid,
                process,
                bytes: u32::try_from(batch.len()).ok()?,
                lost,
            };
            Some(Item::Batch(raw, batch))
        }
        NOTE => serde_json::from_slice(content).ok().map(Item::Note),
        COUNT => {
            let (mut key, rest) = RawLaunchKey::read_from_prefix(content).ok()?;
            let (runs, rest) = u64::read_from_prefix(rest).ok()?;
            let (captured, _) = u64::read_from_prefix(rest).ok()?;
            key.row = rows(key.row)?;
            Some(Item::Count(key, runs, captured))
        }
        RECORD => raw::item_of(content, rows),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuprobe_model::abi::RawCopy;
    use gpuprobe_model::event::TensorRequest;
    use gpuprobe_model::identity::Identity;
    use zerocopy::FromZeros;

    fn events(log: &[u8]) -> Vec<String> {
        items(log, Some).map(|item| format!("{item:?}")).collect()
    }

    #[test]
    fn entries_round_trip() {
        let key = RawLaunchKey {
            handle: 5,
            process: 6,
            row: 7,
            epoch: 8,
        };
        let request = Event::Request(TensorRequest {
            pid: 1,
            address: u64::MAX,
            bytes: 300,
            stream: 0,
        });
        let raw = RawBatch {
            record_type: record::BATCH,
            reserved: 0,
            tgid: 3,
            process: 4,
            bytes: 5,
            lost: 6,
        };
        let note = LogNote::KernelAt(1, u64::MAX, Some("k".to_owned()));
        let mut log = Vec::new();
        append_event(&mut log, &request, None);
        append_count(&mut log, &key, 9, 10);
        append_note(&mut log, &note);
        append(&mut log, 99, |log| {
            log.extend(b"from a later version");
            Some(())
        });
        append(&mut log, EVENT, |_| None);
        append_event(&mut log, &request, Some((&raw, b"batch")));
        let expected = [
            format!("{:?}", Item::Event(request)),
            format!("{:?}", Item::Count(key, 9, 10)),
            format!("{:?}", Item::Note(note)),
            format!("{:?}", Item::Batch(raw, b"batch")),
        ];
        assert_eq!(events(&log), expected);
        assert_eq!(count(&log), 5);
        // Truncated: complete entries remain readable.
        log.truncate(log.len() - 1);
        assert_eq!(events(&log), expected[..3]);
        // Functions that the reader does not have.
        assert_eq!(items(&log, |_| None).count(), 2);
    }

    #[test]
    fn logs_from_before_copies_had_stacks_are_read() {
        let row = gpuprobe_cuda::FUNCTIONS
            .iter()
            .position(|one| one.op.is_copy());
        let row = u16::try_from(row.unwrap()).unwrap();
        let mut raw = RawCopy::new_zeroed();
        (raw.record_type, raw.row, raw.bytes, raw.stack) = (record::COPY, row, 300, 7);
        let item = item_of_record(raw.as_bytes());
        let Some(Item::Event(Event::Copy(mut copy))) = item else {
            panic!("a copy is one");
        };
        let mut log = Vec::new();
        append_event(&mut log, &Event::Copy(copy), None);
        let with_stack = vec![format!("{:?}", Item::Event(Event::Copy(copy)))];
        assert_eq!(events(&log), with_stack);
        copy.stack = 0;
        let without = vec![format!("{:?}", Item::Event(Event::Copy(copy)))];
        log.pop();
        log[1] -= 1;
        assert_eq!(events(&log), without);
        // As 0.2.0 sent it.
        let mut log = Vec::new();
        append(&mut log, RECORD, |log| {
            log.extend(&raw.as_bytes()[..64]);
            Some(())
        });
        assert_eq!(events(&log), without);
    }

    #[test]
    fn answers_are_notes_for_the_next_event() {
        for (note, is_answer) in [
            (LogNote::Identity(1, Identity::default()), true),
            (LogNote::KernelAt(1, 2, None), true),
            (LogNote::VariableSize(1, "a".to_owned(), None), true),
            (LogNote::OnDevice(1, 2, None), true),
            (LogNote::Vanished(1), false),
            (LogNote::Dropped(1), false),
            (LogNote::Used(1, 2, 3), false),
            (LogNote::ProcessesUsed(1, vec![(2, 3)]), false),
        ] {
            assert_eq!(note.is_answer(), is_answer, "{note:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(kind in 0u8..7, bytes in proptest::collection::vec(0u8.., 0..64)) {
            let _ = items(&bytes, Some).count();
            let mut log = Vec::new();
            append(&mut log, kind, |log| {
                log.extend(&bytes);
                Some(())
            });
            let _ = items(&log, Some).count();
        }
    }
}
