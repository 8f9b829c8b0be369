//! Which calls waited and copied: rows of waits and copies of exports do not tell themselves whether
//! and for what the call waited.

use std::collections::HashMap;

use anyhow::Result;
use gpuprobe_cuda::names::plain_name;
use gpuprobe_cuda::nsys::class;

use super::Names;
use super::tables::COPIES;
use super::waits::WAITS;
use crate::row::integer;
use crate::{Database, ids};

/// `CUpti_ActivitySynchronizationType` by the functions that wait.
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

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// It waited, in the way of this number.
    Waited(u32),
    /// It copied, and returned before that was done.
    CopiedAsync,
    /// It copied, and may have waited until that was done.
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

/// Calls by process and correlation, those that waited or copied only.
pub(super) struct Called(HashMap<(u32, i64), What>);

impl Called {
    /// Reads the calls, if the file has waits or copies.
    ///
    /// # Errors
    /// Returns what reading the file fails with.
    pub(super) fn read(database: &Database, names: &Names<'_>) -> Result<Self> {
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
                // It may be within one of the runtime.
                Some(class::DRIVER) => drop(calls.entry(key).or_insert(what)),
                _ => {}
            }
        })?;
        Ok(Self(calls))
    }

    /// The number of the way in which a call waited.
    pub(super) fn wait(&self, pid: u32, correlation: Option<i64>) -> Option<u32> {
        match self.0.get(&(pid, correlation?))? {
            What::Waited(kind) => Some(*kind),
            What::Copied | What::CopiedAsync => None,
        }
    }

    /// Whether a call that copied was asynchronous.
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
    fn names_tell_what_is_called() {
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
