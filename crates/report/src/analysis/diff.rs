//! What grew between two runs, by call stack.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::groups::Group;
use super::listing::{Which, listing};
use super::{Selection, pass};
use gpuprobe_recording::{Database, Session};

/// How much a call stack held in two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grown {
    /// What a run is known by in another run: functions and file names, without addresses.
    pub stack: Vec<String>,
    /// Bytes before, and after.
    pub bytes: [u64; 2],
    /// Allocations before, and after.
    pub allocations: [u64; 2],
}

impl Grown {
    /// Bytes more than before; negative if it is less.
    pub fn delta(&self) -> i128 {
        i128::from(self.bytes[1]) - i128::from(self.bytes[0])
    }
}

/// The comparison of two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// Version of the JSON form: 1.
    pub schema: u32,
    /// `diff`.
    pub analysis: &'static str,
    /// The highest total, before and after.
    pub watermark: [u64; 2],
    /// What was never freed, before and after.
    pub leaked: [u64; 2],
    /// At the highest point, by call stack, what grew most first.
    pub at_peak: Vec<Grown>,
    /// Never freed, by call stack, what grew most first.
    pub never_freed: Vec<Grown>,
}

/// Compares `before` with `after`.
///
/// # Errors
/// Those of the files.
pub fn diff(before: &Database, after: &Database, selection: &Selection) -> Result<Diff> {
    let mut result = Diff {
        schema: 1,
        analysis: "diff",
        watermark: [0; 2],
        leaked: [0; 2],
        at_peak: Vec::new(),
        never_freed: Vec::new(),
    };
    let mut at_peak = BTreeMap::new();
    let mut never_freed = BTreeMap::new();
    for (run, database) in [before, after].into_iter().enumerate() {
        let session = Session::read(database)?;
        let tracker = pass(database, selection, &mut ())?;
        let groups = |which| {
            let listed = listing(which, database, &session, &tracker, selection, true)?;
            Ok::<_, anyhow::Error>((listed.totals.total.bytes, listed.groups.unwrap_or_default()))
        };
        let (bytes, found) = groups(Which::Watermark)?;
        result.watermark[run] = bytes;
        enter(&mut at_peak, run, &found);
        let (bytes, found) = groups(Which::Leakage)?;
        result.leaked[run] = bytes;
        enter(&mut never_freed, run, &found);
    }
    result.at_peak = sorted(at_peak);
    result.never_freed = sorted(never_freed);
    Ok(result)
}

type ByStack = BTreeMap<Vec<String>, Grown>;

fn enter(stacks: &mut ByStack, run: usize, groups: &[Group]) {
    for group in groups {
        let key = key(group);
        let grown = stacks.entry(key.clone()).or_default();
        grown.stack = key;
        grown.bytes[run] = grown.bytes[run].saturating_add(group.bytes);
        grown.allocations[run] += group.allocations;
    }
}

/// Addresses differ from run to run; functions and file names stay.
fn key(group: &Group) -> Vec<String> {
    let mut lines = vec![group.operation.as_deref().unwrap_or(group.kind).to_owned()];
    for frame in group.stack.iter() {
        let file = frame.module.rsplit('/').next().unwrap_or("");
        let function = if frame.unresolved {
            "?"
        } else {
            &frame.function
        };
        lines.push(format!("[{function}] ({file})"));
    }
    lines
}

fn sorted(stacks: ByStack) -> Vec<Grown> {
    let mut grown: Vec<_> = stacks.into_values().collect();
    grown.sort_by_key(|grown| std::cmp::Reverse(grown.delta()));
    grown
}
