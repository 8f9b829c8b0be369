//! Classification of API calls as synchronizations and copies: rows of exports do not contain the
//! kind of a synchronization or whether a copy was asynchronous.

use std::collections::HashMap;

use anyhow::Result;
use gpuprobe_cuda::names::plain_name;
use gpuprobe_cuda::nsys::class;

use super::SharedStrings;
use super::tables::COPIES;
use super::waits::WAITS;
use crate::row::integer;
use crate::{Database, ids};

/// `CUpti_ActivitySynchronizationType` by synchronizing function.
const BY_FUNCTION: [(&str, u32); 8] = [
    ("cudaEventSynchronize", 1),
    ("cuEventSynchronize", 1),
    ("cudaStreamWaitEvent", 2),
    ("cuStreamWaitEvent", 2),
    ("cudaStreamSynchronize", 3),
    ("cuStreamSynchronize", 3),
    ("cudaDeviceSynchronize", 4),
    ("cuCtxSynchronize", 4),
];

/// Effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A synchronization of this type.
    Waited(u32),
    /// An asynchronous copy.
    CopiedAsync,
    /// A copy that may have been synchronous.
    Copied,
}

impl What {
    fn of(function: &str) -> Option<Self> {
        let name = plain_name(function);
        let wait = BY_FUNCTION.iter().find(|(function, _)| *function == name);
        if let Some((_, kind)) = wait {
            return Some(Self::Waited(*kind));
        }
        let copies = name.starts_with("cudaMemcpy") || name.starts_with("cuMemcpy");
        copies.then_some(match name.contains("Async") {
            true => Self::CopiedAsync,
            false => Self::Copied,
        })
    }
}

/// Synchronizing and copying calls by process and correlation id.
pub(super) struct CallsByCorrelation(HashMap<(u32, i64), What>);

impl CallsByCorrelation {
    /// Reads the calls if the file has synchronizations or copies.
    pub(super) fn read(database: &Database, names: &SharedStrings<'_>) -> Result<Self> {
        let mut calls = HashMap::new();
        if ![COPIES.name, WAITS]
            .iter()
            .any(|table| database.has_table(table))
        {
            return Ok(Self(calls));
        }
        // A file has few names and many calls.
        let mut known: HashMap<i64, Option<What>> = HashMap::new();
        let columns = ["correlationId", "nameId", "globalTid", "eventClass"];
        database.each("CUPTI_ACTIVITY_KIND_RUNTIME", &columns, "", |row| {
            let (Some(correlation), Some(name), Some(thread)) =
                (integer(row, 0), integer(row, 1), integer(row, 2))
            else {
                return;
            };
            let what = known
                .entry(name)
                .or_insert_with(|| What::of(&names.of(name)));
            let Some(what) = *what else { return };
            let key = (ids::pid(thread), correlation);
            match integer(row, 3) {
                Some(class::RUNTIME) => drop(calls.insert(key, what)),
                // The driver call may be nested in a runtime call.
                Some(class::DRIVER) => drop(calls.entry(key).or_insert(what)),
                _ => {}
            }
        })?;
        Ok(Self(calls))
    }

    /// The synchronization type of a call.
    pub(super) fn wait(&self, pid: u32, correlation: Option<i64>) -> Option<u32> {
        match self.0.get(&(pid, correlation?))? {
            What::Waited(kind) => Some(*kind),
            What::Copied | What::CopiedAsync => None,
        }
    }

    /// Whether a copying call was asynchronous.
    pub(super) fn is_async(&self, pid: u32, correlation: Option<i64>) -> Option<bool> {
        match self.0.get(&(pid, correlation?))? {
            What::CopiedAsync => Some(true),
            What::Copied => Some(false),
            What::Waited(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_classified_by_name() {
        for (name, expected) in [
            ("cudaMemcpy_v3020", Some(What::Copied)),
            ("cudaMemcpyAsync_ptsz_v7000", Some(What::CopiedAsync)),
            ("cuMemcpyHtoDAsync_v2", Some(What::CopiedAsync)),
            ("cudaMemcpy2DToArrayAsync_v3020", Some(What::CopiedAsync)),
            ("cudaStreamSynchronize_v3020", Some(What::Waited(3))),
            ("cudaMemset_v3020", None),
            ("cudaLaunchKernel_v7000", None),
        ] {
            assert_eq!(What::of(name), expected, "{name}");
        }
    }
}
