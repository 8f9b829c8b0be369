//! Classification of API calls as synchronizations and copies: rows of exports do not contain the
//! kind of a synchronization or whether a copy was asynchronous.

use std::collections::HashMap;

use anyhow::Result;
use gpuprobe_cuda::names::plain_name;
use gpuprobe_cuda::nsys::class;

use super::{COPIES, WAITS};
use crate::memory_rows::CALLS;
use crate::row::integer;
use crate::{Database, Resolver, ids};

/// `CUpti_ActivitySynchronizationType` by synchronizing function, of the runtime or the driver.
const WAITING: [(&str, u32); 5] = [
    ("EventSynchronize", 1),
    ("StreamWaitEvent", 2),
    ("StreamSynchronize", 3),
    ("DeviceSynchronize", 4),
    ("CtxSynchronize", 4),
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
        let name = name.strip_prefix("cuda").or(name.strip_prefix("cu"))?;
        if let Some((_, kind)) = WAITING.iter().find(|(function, _)| *function == name) {
            return Some(Self::Waited(*kind));
        }
        let is_async = name.contains("Async");
        name.starts_with("Memcpy")
            .then_some(Self::Copied { is_async })
    }
}

/// Effects of synchronizing and copying calls by process and correlation id.
pub(super) type Effects = HashMap<(u32, i64), CallEffect>;

/// Reads the effects of calls, if the file has synchronizations or copies.
pub(super) fn effects(database: &Database, names: &Resolver<'_>) -> Result<Effects> {
    let mut effects = HashMap::new();
    if !database.has_table(COPIES.name) && !database.has_table(WAITS) {
        return Ok(effects);
    }
    // A file has few names and many calls.
    let mut known: HashMap<i64, Option<CallEffect>> = HashMap::new();
    let columns = "correlationId, nameId, globalTid, eventClass";
    database.each(CALLS, columns, "", |row| {
        let (Some(correlation), Some(name), Some(thread)) =
            (integer(row, 0), integer(row, 1), integer(row, 2))
        else {
            return;
        };
        let effect = known.entry(name);
        let effect = effect.or_insert_with(|| CallEffect::of(&names.string(name)));
        let Some(effect) = *effect else { return };
        let key = (ids::pid(thread), correlation);
        match integer(row, 3) {
            None | Some(class::RUNTIME) => drop(effects.insert(key, effect)),
            // The driver call may be nested in a runtime call.
            Some(class::DRIVER) => drop(effects.entry(key).or_insert(effect)),
            _ => {}
        }
    })?;
    Ok(effects)
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
