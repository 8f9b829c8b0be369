//! Diagnosis of a session without events.

use std::collections::BTreeSet;

use super::announce::describe;
use super::filter::{EventFilter, ProcessFilter};
use super::{ApiChoice, Target, TraceConfig};
use gpuprobe_cuda::Layer;

/// Exit status of a session without events, unless the command failed.
pub(super) const NOTHING: u8 = 3;

/// The CUDA layers that the traced processes have loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedLayers {
    runtime: bool,
    driver: bool,
}

impl LoadedLayers {
    /// Records that a process has mapped a library of `layer`.
    pub(crate) fn add(&mut self, layer: Layer) {
        self.runtime |= layer == Layer::Runtime;
        self.driver |= layer == Layer::Driver;
    }

    fn any(self) -> bool {
        self.runtime || self.driver
    }
}

/// The processes seen by a filter.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Whether any process called a probed function, reported or not.
    pub(super) any: bool,
    /// Names of at most [`MAX_NAMES`] of them.
    pub(super) names: BTreeSet<String>,
    /// Whether any of them was accepted.
    pub(super) accepted: bool,
    /// For each criterion, whether any of them met it.
    pub(super) met: Met,
}

/// Which criteria of a filter are met, in the order of [`unmet`]; not given is met.
pub(super) type Met = [bool; 5];

/// Maximum number of process names in a message.
pub(super) const MAX_NAMES: usize = 5;

/// The reason why no event was traced and what to do about it; `None` if there were events, or the
/// reason is unknown.
pub(super) fn why(
    config: &TraceConfig,
    loaded: LoadedLayers,
    filter: &EventFilter,
) -> Option<String> {
    let seen = &filter.seen;
    let has_cuda = loaded.any() || seen.any;
    if !has_cuda && config.target != Target::Everything {
        let target = describe(config);
        return Some(format!("{target} never loaded CUDA (libcuda, libcudart)"));
    }
    let needs_runtime = config.advanced.api == ApiChoice::Runtime && !config.traces_only_gpus();
    if needs_runtime && has_cuda && !loaded.runtime {
        return Some(
            "libcudart is not loaded (programs may have it linked in); use --api auto".to_owned(),
        );
    }
    if !config.filter.is_empty() && !seen.accepted {
        return Some(unmet(&config.filter, seen));
    }
    (!has_cuda).then(|| "no process has loaded CUDA (libcuda, libcudart)".to_owned())
}

/// The message about the filter options that no process meets, or that none meets at once.
fn unmet(filter: &ProcessFilter, seen: &Seen) -> String {
    let uids: Vec<_> = filter.uids.iter().map(u32::to_string).collect();
    let criteria = [
        ("--comm", filter.comms.as_slice()),
        ("--uid", &uids),
        ("--container", filter.container.as_slice()),
        ("--cgroup", filter.cgroup.as_slice()),
        ("--exclude", &filter.excluded),
    ];
    let given = criteria.iter().zip(seen.met);
    let given = given.filter(|((_, words), _)| !words.is_empty());
    let is_one_unmet = given.clone().any(|(_, met)| !met);
    let named: Vec<_> = given
        .filter(|(_, met)| !is_one_unmet || !met)
        .map(|((option, words), _)| format!("{option} {}", words.join(" or ")))
        .collect();
    let names: Vec<_> = seen.names.iter().map(String::as_str).collect();
    let others = match names.is_empty() {
        true => "none called CUDA".to_owned(),
        false => format!("seen: {}", names.join(", ")),
    };
    format!("no process meets {} ({others})", named.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(comm: &[&str], uids: &[u32], excluded: &[&str]) -> ProcessFilter {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        ProcessFilter {
            comms: owned(comm),
            uids: uids.to_vec(),
            excluded: owned(excluded),
            ..ProcessFilter::default()
        }
    }

    #[test]
    fn the_unmet_criterion_is_named() {
        let all = [true; 5];
        let seen = |met: Met| Seen {
            any: true,
            names: ["serve".to_owned(), "train".to_owned()].into(),
            accepted: false,
            met,
        };
        let none = Seen::default();
        let unmet_at = |criterion: usize| std::array::from_fn(|at| at != criterion);
        let (no_comm, no_uid, excluded) = (unmet_at(0), unmet_at(1), unmet_at(4));
        for (filter, seen, said) in [
            (
                filter(&["x"], &[], &[]),
                &none,
                "no process meets --comm x (none called CUDA)",
            ),
            (
                filter(&["x", "y"], &[0], &[]),
                &seen(no_comm),
                "no process meets --comm x or y (seen: serve, train)",
            ),
            (
                filter(&[], &[7], &[]),
                &seen(no_uid),
                "no process meets --uid 7 (seen: serve, train)",
            ),
            (
                filter(&[], &[], &["serve", "train"]),
                &seen(excluded),
                "no process meets --exclude serve or train (seen: serve, train)",
            ),
            (
                filter(&["train"], &[7], &["1"]),
                &seen(all),
                "no process meets --comm train and --uid 7 and --exclude 1 (seen: serve, train)",
            ),
        ] {
            assert_eq!(unmet(&filter, seen), said);
        }
    }
}
