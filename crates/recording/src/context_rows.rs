//! Contexts of a recording: when programs created and destroyed them.

use std::collections::HashMap;

use anyhow::Result;

use crate::row::integer;
use crate::{Database, ids};
use gpuprobe_model::event::CONTEXT_UNKNOWN;

/// Table of contexts, which only recordings have.
const CONTEXTS: &str = "GPUPROBE_CONTEXTS";

/// Creation or destruction of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextChange {
    /// Return of the call, in nanoseconds of session time.
    pub time_ns: i64,
    /// Index of the device, if known.
    pub device: Option<i64>,
    /// Number of the context in its process; [`CONTEXT_UNKNOWN`] if it was created before the
    /// recording.
    pub number: u16,
    /// It is a creation.
    pub creates: bool,
}

/// Reads the creations and destructions of contexts by process, in the order of their times.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn by_process(database: &Database) -> Result<HashMap<u32, Vec<ContextChange>>> {
    let mut found: HashMap<u32, Vec<ContextChange>> = HashMap::new();
    let columns = ["globalPid", "device", "contextId", "t0", "t1"];
    database.each(CONTEXTS, &columns, "ORDER BY rowid", |row| {
        let Some(process) = integer(row, 0) else {
            return;
        };
        let number = integer(row, 2).and_then(ids::context_number);
        let times = [(integer(row, 3), true), (integer(row, 4), false)];
        let rows = found.entry(ids::pid(process)).or_default();
        for (time_ns, creates) in times {
            rows.extend(time_ns.map(|time_ns| ContextChange {
                time_ns,
                device: integer(row, 1),
                number: number.unwrap_or(CONTEXT_UNKNOWN),
                creates,
            }));
        }
    })?;
    for rows in found.values_mut() {
        // Of equal times, the older context comes first.
        rows.sort_by_key(|row| row.time_ns);
    }
    Ok(found)
}
