//! Classification of API calls as synchronizations and copies: rows of exports do not contain the
//! kind of a synchronization or whether a copy was asynchronous.

use std::collections::HashMap;

use anyhow::Result;
use gpuprobe_cuda::names::plain_name;
use gpuprobe_cuda::nsys::class;

use super::SharedStrings;
use super::tables::{CALLS, COPIES, WAITS};
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
pub(super) enum CallEffect {
    /// A synchronization of this type.
    Waited(u32),
    /// A copy; one that is not asynchronous may have been synchronous.
    Copied { is_async: bool },
}

impl CallEffect {
    fn of(function: &str) -> Option<Self> {
        let name = plain_name(function);
        let wait = BY_FUNCTION.iter().find(|(function, _)| *function == name);
        if let Some((_, kind)) = wait {
            return Some(Self::Waited(*kind));
        }
        let copies = name.starts_with("cudaMemcpy") || name.starts_with("cuMemcpy");
        copies.then(|| Self::Copied {
            is_async: name.contains("Async"),
        })
    }
}

/// Synchronizing and copying calls by process and correlation id.
pub(super) struct CallsByCorrelation(HashMap<(u32, i64), CallEffect>);

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
        let mut known: HashMap<i64, Option<CallEffect>> = HashMap::new();
        let columns = ["correlationId", "nameId", "globalTid", "eventClass"];
        database.each(CALLS, &columns, "", |row| {
            let (Some(correlation), Some(name), Some(thread)) =
                (integer(row, 0), integer(row, 1), integer(row, 2))
            else {
                return;
            };
            let what = known
                .entry(name)
                .or_insert_with(|| CallEffect::of(&names.of(name)));
            let Some(what) = *what else { return };
            let key = (ids::pid(thread), correlation);
            match integer(row, 3) {
                None | Some(class::RUNTIME) => drop(calls.insert(key, what)),
                // The driver call may be nested in a runtime call.
                Some(class::DRIVER) => drop(calls.entry(key).or_insert(what)),
                _ => {}
            }
        })?;
        Ok(Self(calls))
    }

    /// The effect of a call.
    pub(super) fn effect(&self, pid: u32, correlation: Option<i64>) -> Option<CallEffect> {
        self.0.get(&(pid, correlation?)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_classified_by_name() {
        let copied = |is_async| Some(CallEffect::Copied { is_async });
        for (name, expected) in [
            ("cudaMemcpy_v3020", copied(false)),
            ("cudaMemcpyAsync_ptsz_v7000", copied(true)),
            ("cuMemcpyHtoDAsync_v2", copied(true)),
            ("cudaMemcpy2DToArrayAsync_v3020", copied(true)),
            ("cudaStreamSynchronize_v3020", Some(CallEffect::Waited(3))),
            ("cudaMemset_v3020", None),
            ("cudaLaunchKernel_v7000", None),
        ] {
            assert_eq!(CallEffect::of(name), expected, "{name}");
        }
    }
}
