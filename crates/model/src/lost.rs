//! What is missing in the figures.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

/// Events that did not reach the ledger, by consequence. Any non-zero value means that figures
/// are incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Memory calls: the ring or a map was full, or a result could not be read.
    pub memory: u64,
    /// Names and ends of processes and threads.
    pub tasks: u64,
    /// Hints that a process has mapped a new library.
    pub notices: u64,
    /// Facts about which context is on which device.
    pub contexts: u64,
    /// Children of the traced command that are not followed.
    pub children: u64,
    /// Launches that were not counted.
    pub launches: u64,
    /// Names of kernels.
    pub names: u64,
    /// Copies.
    pub copies: u64,
    /// Launches that were counted, but are not recorded one by one.
    pub single_launches: u64,
    /// Call stacks that were not taken.
    pub stacks: u64,
    /// Call stacks of which only the part is known that frame pointers lead to.
    pub partial_stacks: u64,
    /// Python frames of call stacks that were not taken.
    pub python: u64,
    /// Call stacks with more Python frames than are kept.
    pub python_cut: u64,
    /// Call stacks with a Python frame, and code objects, that could not be read.
    pub python_unreadable: u64,
    /// Tensors, and what was asked for of these: there was little room in the ring, or there is no such
    /// device.
    pub tensors: u64,
    /// Records of what the GPU did, between the process and here.
    pub activity: u64,
    /// Records of what the GPU did that CUPTI itself dropped.
    pub cupti_dropped: u64,
    /// Records of CUPTI that are of no known kind.
    pub cupti_unknown: u64,
    /// Records or ends of buffers of CUPTI that could not be read.
    pub cupti_malformed: u64,
    /// Records that a recording does not have, as it could not be written fast enough.
    pub recording: u64,
    /// Records that could not be decoded.
    pub undecodable: u64,
}

impl Lost {
    /// Whether anything was lost.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// The losses by the names that they have in JSON.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let named = serde_json::to_value(self).and_then(serde_json::from_value);
        named.unwrap_or_default()
    }
}

/// What was lost of one process, or of the processes of a user that are not told apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserLoss {
    /// To whom the process counts: who has made its user namespace, if it is in one that root has not
    /// made, and else its user.
    pub uid: u32,
    /// The process; none for those of the user of which there are too many to be told apart.
    pub pid: Option<u32>,
    /// Its name when it lost something for the first time.
    pub comm: Option<String>,
    /// What was lost: a key of [`Lost`].
    pub what: String,
    /// How much of it.
    pub count: u64,
}

impl UserLoss {
    /// The same without whose it is.
    pub fn alone(&self) -> Lost {
        let named = serde_json::json!({ &self.what: self.count });
        serde_json::from_value(named).unwrap_or_default()
    }
}

/// The most rows of [`UserLoss`] that are told.
const MAX_USER_LOSSES: usize = 256;

/// Losses by user and process, as they are told: the same of the same are one; those of the most come
/// first; and of those that are too many only the user is told.
pub fn by_user(losses: impl IntoIterator<Item = UserLoss>) -> Vec<UserLoss> {
    const HALF: usize = MAX_USER_LOSSES / 2;
    let mut told = add_up(losses);
    if told.len() > MAX_USER_LOSSES {
        let others = told.split_off(HALF);
        let of_others = others.into_iter().map(|loss| UserLoss {
            pid: None,
            comm: None,
            ..loss
        });
        told.extend(add_up(of_others).into_iter().take(HALF));
    }
    told
}

/// Makes one of what differs in its count only; those of the most first.
fn add_up(losses: impl IntoIterator<Item = UserLoss>) -> Vec<UserLoss> {
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
    fn the_same_losses_are_one_and_the_most_come_first() {
        let told = by_user([
            loss(1, 10, 3),
            loss(2, 20, 9),
            loss(1, 10, 4),
            loss(1, 11, 0),
        ]);
        assert_eq!(told, [loss(2, 20, 9), loss(1, 10, 7)]);
    }

    #[test]
    fn of_too_many_the_user_is_told_and_nothing_is_missing() {
        let many = (0..10_000).map(|pid| loss(pid % 3, pid + 1, u64::from(pid) + 1));
        let told = by_user(many);
        assert_eq!(told.len(), MAX_USER_LOSSES / 2 + 3);
        let sum: u64 = told.iter().map(|loss| loss.count).sum();
        assert_eq!(sum, (1..=10_000).sum::<u64>());
        assert_eq!(told.iter().filter(|loss| loss.pid.is_none()).count(), 3);
        let of_very_many_users = (0..10_000).map(|uid| loss(uid, 1, 1));
        assert!(by_user(of_very_many_users).len() <= MAX_USER_LOSSES);
    }
}
