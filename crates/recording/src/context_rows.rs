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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample::database;

    #[test]
    fn contexts_are_created_and_destroyed_in_the_order_of_time() {
        let process = ids::global_pid(999);
        let made = ids::context_id(0, 3);
        let rows = format!(
            "CREATE TABLE GPUPROBE_CONTEXTS (globalPid, device, contextId, t0, t1);
            INSERT INTO GPUPROBE_CONTEXTS VALUES ({process}, 0, {made}, 20, 30),
                ({process}, 1, 2, 10, 20), ({process}, NULL, NULL, NULL, 5), (NULL, 0, 1, 1, 2);"
        );
        let found = by_process(&database(&rows)).unwrap();
        let change = |time_ns, device, number, creates| ContextChange {
            time_ns,
            device,
            number,
            creates,
        };
        let expected = [
            change(5, None, CONTEXT_UNKNOWN, false),
            change(10, Some(1), CONTEXT_UNKNOWN, true),
            change(20, Some(0), 3, true),
            change(20, Some(1), CONTEXT_UNKNOWN, false),
            change(30, Some(0), 3, false),
        ];
        assert_eq!((found.len(), &found[&999][..]), (1, &expected[..]));
        assert!(by_process(&database("")).unwrap().is_empty());
    }
}
