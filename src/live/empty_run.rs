//! Diagnosis of a session without events.

use std::collections::BTreeSet;
use std::path::Path;

use super::filter::{EventFilter, ProcessFilter};
use super::{ApiChoice, Target, TraceConfig};
use gpuprobe_cuda::{Layer, Modes};

/// Exit status of a session without events, unless the command failed.
pub(super) const NOTHING: u8 = 3;

/// The CUDA layers that the traced processes have loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedLayers {
    runtime: bool,
    driver: bool,
}

impl LoadedLayers {
    /// Records that a process has mapped a library of `layer`. Returns whether that is new.
    pub(crate) fn add(&mut self, layer: Layer) -> bool {
        let before = *self;
        self.runtime |= layer == Layer::Runtime;
        self.driver |= layer == Layer::Driver;
        *self != before
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

/// The criteria of a filter that a process meets; not given is met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Met {
    pub(super) not_excluded: bool,
    pub(super) comm: bool,
    pub(super) uid: bool,
    pub(super) container: bool,
    pub(super) cgroup: bool,
}

impl Met {
    pub(super) fn all(self) -> bool {
        self == Self {
            not_excluded: true,
            comm: true,
            uid: true,
            container: true,
            cgroup: true,
        }
    }

    pub(super) fn and_by_another(&mut self, other: Self) {
        self.not_excluded |= other.not_excluded;
        self.comm |= other.comm;
        self.uid |= other.uid;
        self.container |= other.container;
        self.cgroup |= other.cgroup;
    }
}

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
    if !has_cuda && let Some(why) = no_cuda(&config.target) {
        return Some(why);
    }
    let only_gpu = Modes {
        activity: true,
        ..Modes::default()
    };
    if config.advanced.api == ApiChoice::Runtime
        && has_cuda
        && !loaded.runtime
        && config.modes != only_gpu
    {
        return Some(
            "libcudart is not loaded (programs may have it linked in); use --api auto".to_owned(),
        );
    }
    if !config.filter.is_empty() && !seen.accepted {
        return Some(unmet(&config.filter, seen));
    }
    (!has_cuda).then(|| "no process has loaded CUDA (libcuda, libcudart)".to_owned())
}

/// The message that no target has loaded CUDA; `None` for a host-wide session. Of a process given by
/// its id, only the libraries loaded while it was traced are known.
fn no_cuda(target: &Target) -> Option<String> {
    match target {
        Target::Everything => None,
        Target::Processes(pids) => {
            let names: Vec<_> = pids.iter().map(u32::to_string).collect();
            let (who, was) = match names.len() {
                1 => ("process", "it was"),
                _ => ("none of processes", "they were"),
            };
            let had = if names.len() == 1 { "had no" } else { "had" };
            Some(format!(
                "{who} {} {had} CUDA loaded (libcuda, libcudart) while {was} traced",
                names.join(", ")
            ))
        }
        Target::Command(words) => {
            let name = words.first()?.to_string_lossy();
            Some(format!("{name} never loaded CUDA (libcuda, libcudart)"))
        }
    }
}

/// The message about the filter option that no process meets.
fn unmet(filter: &ProcessFilter, seen: &Seen) -> String {
    let met = seen.met;
    let uids: Vec<_> = filter.uids.iter().map(u32::to_string).collect();
    let container = filter.container.iter().cloned().collect::<Vec<_>>();
    let cgroup = filter.cgroup.iter().cloned().collect::<Vec<_>>();
    let criteria = [
        ("--comm", "named", &filter.comms, met.comm),
        ("--uid", "of user", &uids, met.uid),
        ("--container", "in container", &container, met.container),
        ("--cgroup", "in cgroup", &cgroup, met.cgroup),
    ];
    let asked = || {
        criteria
            .iter()
            .filter(|(_, _, wanted, _)| !wanted.is_empty())
    };
    if let Some(path) = filter.cgroup.as_ref().filter(|path| !is_cgroup(path)) {
        return format!("there is no cgroup {path}; give its path below /sys/fs/cgroup");
    }
    let names: Vec<_> = seen.names.iter().map(String::as_str).collect();
    let others = match names.is_empty() {
        true => "none called CUDA".to_owned(),
        false => format!("seen: {}", names.join(", ")),
    };
    if let Some((_, how, wanted, _)) = asked().find(|(_, _, _, met)| !met) {
        return format!(
            "no process {how} {} was seen ({others})",
            wanted.join(" or ")
        );
    }
    if !met.not_excluded {
        return format!("--exclude removes every process ({others})");
    }
    let mut options: Vec<_> = asked().map(|(option, ..)| *option).collect();
    options.extend((!filter.excluded.is_empty()).then_some("--exclude"));
    format!(
        "no process meets {} at once ({others})",
        options.join(" and ")
    )
}

/// Whether the cgroup exists in any hierarchy.
fn is_cgroup(path: &str) -> bool {
    let root = Path::new("/sys/fs/cgroup");
    let below = path.trim_start_matches('/');
    let in_one = |folder: std::fs::DirEntry| folder.path().join(below).is_dir();
    Path::new(path).starts_with(root) && Path::new(path).is_dir()
        || root.join(below).is_dir()
        || std::fs::read_dir(root).is_ok_and(|mut all| all.any(|f| f.is_ok_and(in_one)))
        // Unknown without the file system: no message about it.
        || !root.is_dir()
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
        let all = Met {
            not_excluded: true,
            comm: true,
            uid: true,
            container: true,
            cgroup: true,
        };
        let seen = |met: Met| Seen {
            any: true,
            names: ["serve".to_owned(), "train".to_owned()].into(),
            accepted: false,
            met,
        };
        let none = Seen::default();
        let (no_comm, no_uid) = (Met { comm: false, ..all }, Met { uid: false, ..all });
        let excluded = Met {
            not_excluded: false,
            ..all
        };
        for (filter, seen, said) in [
            (
                filter(&["x"], &[], &[]),
                &none,
                "no process named x was seen (none called CUDA)",
            ),
            (
                filter(&["x", "y"], &[0], &[]),
                &seen(no_comm),
                "no process named x or y was seen (seen: serve, train)",
            ),
            (
                filter(&[], &[7], &[]),
                &seen(no_uid),
                "no process of user 7 was seen (seen: serve, train)",
            ),
            (
                filter(&[], &[], &["serve", "train"]),
                &seen(excluded),
                "--exclude removes every process (seen: serve, train)",
            ),
            (
                filter(&["train"], &[7], &["1"]),
                &seen(all),
                "no process meets --comm and --uid and --exclude at once (seen: serve, train)",
            ),
        ] {
            assert_eq!(unmet(&filter, seen), said);
        }
    }

    #[test]
    fn a_cgroup_is_found_by_absolute_and_relative_paths() {
        assert!(is_cgroup("/"));
        assert!(is_cgroup("/sys/fs/cgroup"));
        assert!(!is_cgroup("/no/such/group") || !Path::new("/sys/fs/cgroup").is_dir());
    }
}
