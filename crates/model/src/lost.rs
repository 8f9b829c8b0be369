//! Counters of lost events.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

macro_rules! lost {
    ($($(#[$meaning:meta])* $name:ident = $words:literal,)*) => {
        /// Lost events by consequence. A non-zero counter means that figures are incomplete.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Lost {
            $($(#[$meaning])* pub $name: u64,)*
        }

        impl Lost {
            /// The counters by their names in JSON and in recordings.
            pub fn by_name(&self) -> BTreeMap<String, u64> {
                BTreeMap::from([$((stringify!($name).to_owned(), self.$name),)*])
            }

            /// The counters, and what they count.
            pub fn in_words(&self) -> Vec<(u64, &'static str)> {
                vec![$((self.$name, $words),)*]
            }

            /// Adds the counters of `more`.
            pub fn merge(&mut self, more: Self) {
                $(self.$name += more.$name;)*
            }

            /// The counters with these names; others are left out.
            pub fn from_names(named: &BTreeMap<String, u64>) -> Self {
                let count = |name| named.get(name).copied().unwrap_or(0);
                Self { $($name: count(stringify!($name)),)* }
            }
        }
    };
}

lost! {
    /// Memory calls lost: the ring or a map was full, or a result could not be read.
    memory = "memory calls",
    /// Names and exits of processes and threads lost.
    tasks = "names or ends of processes and threads",
    /// Notifications lost that a process has mapped a new library.
    notices = "hints at new libraries",
    /// Context-to-device assignments that were lost.
    contexts = "devices of contexts",
    /// Child processes of the traced command that are not followed.
    children = "children not followed",
    /// Launches that were not counted.
    launches = "launches",
    /// Names of kernels that were lost.
    names = "names of kernels",
    /// Copies and memsets lost.
    copies = "copies",
    /// Launches that were counted but not recorded one by one.
    single_launches = "single launches of a recording",
    /// Call stacks that were not taken.
    stacks = "call stacks",
    /// Call stacks of which only the frame-pointer part is available.
    partial_stacks = "call stacks beyond their first part",
    /// Call stacks without their Python frames.
    python = "call stacks without their Python frames",
    /// Call stacks with more Python frames than the limit.
    python_cut = "call stacks with too many Python frames",
    /// Call stacks with a Python frame, and code objects, that could not be read.
    python_unreadable = "unreadable Python frames",
    /// Tensor allocations, frees and their requests lost: the ring was nearly full, or the device
    /// index was invalid.
    tensors = "tensors",
    /// GPU activity records lost between the traced process and gpuprobe.
    activity = "records of what the GPU did",
    /// GPU activity records that CUPTI itself dropped.
    cupti_dropped = "records that CUPTI dropped",
    /// CUPTI records of an unknown kind.
    cupti_unknown = "records of CUPTI of no known kind",
    /// CUPTI records or buffers that could not be parsed.
    cupti_malformed = "records of CUPTI that make no sense",
    /// Records missing from a recording because it could not be written fast enough.
    recording = "records of the recording",
    /// Calls with a value of an enumeration of a newer CUDA: their memory is at an unknown location, or its size
    /// is unknown.
    unknown_values = "values that are newer than gpuprobe",
    /// Records that could not be decoded.
    undecodable = "records not understood",
}

impl Lost {
    /// Whether any counter is non-zero.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// Losses of one kind of a process, or of the other processes of its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserLoss {
    /// User of the process.
    pub uid: u32,
    /// Process id; `None` for the sum of a user's processes beyond the limit.
    pub pid: Option<u32>,
    /// Name of the process at its first loss.
    pub comm: Option<String>,
    /// Kind of loss: a key of [`Lost`].
    pub what: String,
    /// Number of lost items.
    pub count: u64,
}

impl UserLoss {
    /// The same loss as a [`Lost`] without user and process.
    pub fn to_lost(&self) -> Lost {
        Lost::from_names(&BTreeMap::from([(self.what.clone(), self.count)]))
    }
}

/// Maximum number of [`UserLoss`] rows in a report.
const MAX_USER_LOSSES: usize = 256;

/// Sums losses by user, process and kind: the largest, largest first.
pub fn by_user(losses: impl IntoIterator<Item = UserLoss>) -> Vec<UserLoss> {
    let mut sums: BTreeMap<_, UserLoss> = BTreeMap::new();
    for loss in losses.into_iter().filter(|loss| loss.count > 0) {
        let key = (loss.uid, loss.pid, loss.what.clone());
        match sums.entry(key) {
            Entry::Occupied(mut known) => {
                let count = &mut known.get_mut().count;
                *count = count.saturating_add(loss.count);
            }
            Entry::Vacant(new) => drop(new.insert(loss)),
        }
    }
    let mut rows: Vec<_> = sums.into_values().collect();
    rows.sort_by_key(|loss| Reverse(loss.count));
    rows.truncate(MAX_USER_LOSSES);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(uid: u32, pid: u32, count: u64) -> UserLoss {
        UserLoss {
            uid,
            pid: Some(pid),
            comm: Some(format!("p{pid}")),
            what: "memory".to_owned(),
            count,
        }
    }

    #[test]
    fn equal_losses_are_merged_largest_first() {
        let rows = by_user([
            loss(1, 10, 3),
            loss(2, 20, 9),
            loss(1, 10, 4),
            loss(1, 11, 0),
        ]);
        assert_eq!(rows, [loss(2, 20, 9), loss(1, 10, 7)]);
    }

    #[test]
    fn losses_are_known_by_their_names() {
        let lost = Lost {
            memory: 1,
            undecodable: 2,
            ..Lost::default()
        };
        assert!(lost.any() && !Lost::default().any());
        let named = lost.by_name();
        assert_eq!((named["memory"], named["undecodable"]), (1, 2));
        assert_eq!((named["names"], named.values().sum::<u64>()), (0, 3));
        let expected = Lost {
            memory: 5,
            ..Lost::default()
        };
        assert_eq!(loss(1, 10, 5).to_lost(), expected);
        let unknown = UserLoss {
            what: "other".to_owned(),
            ..loss(1, 10, 5)
        };
        assert_eq!(unknown.to_lost(), Lost::default());
    }

    #[test]
    fn the_largest_losses_are_told_apart() {
        let rows = by_user((1..=300).map(|pid| loss(1, pid, pid.into())));
        assert_eq!(rows.len(), MAX_USER_LOSSES);
        assert_eq!((rows[0].count, rows[255].count), (300, 45));
    }
}
