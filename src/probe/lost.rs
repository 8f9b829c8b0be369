//! Loss counters of the kernel side.

use std::mem::offset_of;

use zerocopy::FromBytes;

use super::skeleton::types::gp_losses;
use gpuprobe_model::abi::{RawLoss, RawLossKey};
use gpuprobe_model::event;
use gpuprobe_model::{Lost, UserLoss};

/// The sums of the kernel side's counters.
pub(super) fn all(losses: &gp_losses) -> Lost {
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
    Lost {
        memory: ring_full + threads_full + nesting + unreadable,
        tasks,
        notices,
        contexts,
        children: targets,
        launches,
        names,
        copies,
        single_launches,
        stacks,
        partial_stacks: stack_copies,
        activity,
        python,
        python_cut,
        python_unreadable,
        tensors,
        ..Lost::default()
    }
}

/// Offset of each counter, with the name of its sum in [`Lost`].
const NAMES: [(usize, &str); size_of::<gp_losses>() / size_of::<u64>()] = [
    (offset_of!(gp_losses, ring_full), "memory"),
    (offset_of!(gp_losses, threads_full), "memory"),
    (offset_of!(gp_losses, nesting), "memory"),
    (offset_of!(gp_losses, unreadable), "memory"),
    (offset_of!(gp_losses, tasks), "tasks"),
    (offset_of!(gp_losses, notices), "notices"),
    (offset_of!(gp_losses, contexts), "contexts"),
    (offset_of!(gp_losses, targets), "children"),
    (offset_of!(gp_losses, launches), "launches"),
    (offset_of!(gp_losses, names), "names"),
    (offset_of!(gp_losses, copies), "copies"),
    (offset_of!(gp_losses, single_launches), "single_launches"),
    (offset_of!(gp_losses, stacks), "stacks"),
    (offset_of!(gp_losses, stack_copies), "partial_stacks"),
    (offset_of!(gp_losses, activity), "activity"),
    (offset_of!(gp_losses, python), "python"),
    (offset_of!(gp_losses, python_cut), "python_cut"),
    (
        offset_of!(gp_losses, python_unreadable),
        "python_unreadable",
    ),
    (offset_of!(gp_losses, tensors), "tensors"),
];

/// The name in [`Lost`] of the counter with this index.
fn name_of(place: u32) -> Option<&'static str> {
    let offset = (place as usize).checked_mul(size_of::<u64>())?;
    let named = NAMES.iter().find(|(at, _)| *at == offset);
    named.map(|(_, name)| *name)
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
    fn every_counter_has_a_name_of_lost() {
        let names = Lost::default().by_name();
        for place in 0..NAMES.len() {
            let name = u32::try_from(place).ok().and_then(name_of);
            assert!(
                name.is_some_and(|name| names.contains_key(name)),
                "{place}: {name:?}"
            );
        }
        assert_eq!(name_of(19), None);
        assert_eq!(name_of(u32::MAX), None);
    }
}
