//! Loss counters of the kernel side.

use std::collections::BTreeMap;

use zerocopy::FromBytes;

use super::skeleton::types::gp_losses;
use gpuprobe_model::abi::{RawLoss, RawLossKey};
use gpuprobe_model::event;
use gpuprobe_model::{Lost, UserLoss};

const COUNTERS: usize = size_of::<gp_losses>() / size_of::<u64>();

/// The counters in the kernel side's order, each with the name of its sum in [`Lost`].
fn counters(losses: &gp_losses) -> [(&'static str, u64); COUNTERS] {
    // Exhaustive: a new counter must be added to a sum.
    let gp_losses {
        ring_full,
        threads_full,
        nesting,
        unreadable,
        tasks,
        notices,
        contexts,
        targets,
        launches,
        names,
        copies,
        single_launches,
        stacks,
        stack_copies,
        activity,
        python,
        python_cut,
        python_unreadable,
        tensors,
    } = *losses;
    [
        ("memory", ring_full),
        ("memory", threads_full),
        ("memory", nesting),
        ("memory", unreadable),
        ("tasks", tasks),
        ("notices", notices),
        ("contexts", contexts),
        ("children", targets),
        ("launches", launches),
        ("names", names),
        ("copies", copies),
        ("single_launches", single_launches),
        ("stacks", stacks),
        ("partial_stacks", stack_copies),
        ("activity", activity),
        ("python", python),
        ("python_cut", python_cut),
        ("python_unreadable", python_unreadable),
        ("tensors", tensors),
    ]
}

/// The sums of the kernel side's counters.
pub(super) fn all(losses: &gp_losses) -> Lost {
    let mut sums = BTreeMap::new();
    for (name, count) in counters(losses) {
        *sums.entry(name.to_owned()).or_insert(0) += count;
    }
    Lost::from_names(&sums)
}

/// The name in [`Lost`] of the counter with this index.
fn name_of(place: u32) -> Option<&'static str> {
    let counters = counters(&gp_losses::default());
    counters.get(place as usize).map(|(name, _)| *name)
}

/// An entry of the map of losses by process; `None` if it is malformed.
pub(super) fn of_process(key: &[u8], value: &[u8]) -> Option<UserLoss> {
    let (key, _) = RawLossKey::read_from_prefix(key).ok()?;
    let (loss, _) = RawLoss::read_from_prefix(value).ok()?;
    Some(UserLoss {
        uid: loss.uid,
        pid: Some(key.tgid),
        comm: Some(event::text(&loss.comm)),
        what: name_of(key.what)?.to_owned(),
        count: loss.count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn every_counter_has_a_name_of_lost_and_its_place() {
        let places: [u64; COUNTERS] = std::array::from_fn(|place| place as u64);
        // SAFETY: both have the layout of C, and any number is valid in each.
        let losses: gp_losses = unsafe { std::mem::transmute(places) };
        assert_eq!(counters(&losses).map(|(_, place)| place), places);
        let known = Lost::default().by_name();
        assert!(
            counters(&losses)
                .iter()
                .all(|(name, _)| known.contains_key(*name))
        );
        assert_eq!((all(&losses).memory, all(&losses).tensors), (1 + 2 + 3, 18));
        assert_eq!((name_of(18), name_of(19)), (Some("tensors"), None));
    }
}
