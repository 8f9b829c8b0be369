//! Loss counters of the kernel side.

use std::collections::BTreeMap;
use std::mem::offset_of;

use zerocopy::FromBytes;

use super::skeleton::types::{bss, gp_losses};
use gpuprobe_model::abi::{RawLoss, RawLossKey};
use gpuprobe_model::event;
use gpuprobe_model::{Lost, UserLoss};

/// Offset of each counter, with the name of its sum in [`Lost`].
const SUMS: [(usize, &str); size_of::<gp_losses>() / size_of::<u64>()] = [
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

/// The sums of the counters in the globals.
pub(super) fn all(globals: &[u8]) -> Lost {
    let mut sums = BTreeMap::new();
    for (offset, name) in SUMS {
        let counter = globals.get(offset_of!(bss, losses) + offset..);
        let counter = counter.and_then(|bytes| u64::read_from_prefix(bytes).ok());
        let sum: &mut u64 = sums.entry(name.to_owned()).or_default();
        *sum += counter.map_or(0, |(count, _)| count);
    }
    Lost::from_names(&sums)
}

/// The name in [`Lost`] of the counter with this index.
fn name_of(place: u32) -> Option<&'static str> {
    let offset = (place as usize).checked_mul(size_of::<u64>())?;
    let named = SUMS.iter().find(|(at, _)| *at == offset);
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
    fn every_counter_has_a_name_of_lost_and_its_place() {
        let mut globals = vec![0; offset_of!(bss, losses)];
        for place in 0..SUMS.len() as u64 {
            globals.extend(place.to_ne_bytes());
        }
        let (lost, known) = (all(&globals), Lost::default().by_name());
        assert!(SUMS.iter().all(|(_, name)| known.contains_key(*name)));
        assert_eq!((lost.memory, lost.tensors), (1 + 2 + 3, 18));
        assert_eq!(all(&[]), Lost::default());
        assert_eq!((name_of(18), name_of(19)), (Some("tensors"), None));
        assert_eq!(name_of(u32::MAX), None);
    }
}
