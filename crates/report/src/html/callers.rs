//! Call sites, owners and stacks of the callers of a file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::document::{SiteData, StackData};
use super::frames::FrameTable;
use super::memory::{BinChange, StackChanges, StackKey};
use crate::analysis::{Callers, RowLedger};
use crate::label;
use crate::memleak::SiteGroups;
use crate::owners::Owners;
use gpuprobe_model::stack::Symbolize;

/// Limit on the call stacks; smaller ones are merged.
const STACKS: usize = 20_000;

/// Labels and frames of callers.
pub(super) struct CallerNames<'a, 'b> {
    callers: &'a Callers<'b>,
    owners: Owners<'a>,
    /// Numbers of call sites in reports by process and caller.
    ids: HashMap<(u32, u32), u32>,
}

impl<'a, 'b> CallerNames<'a, 'b> {
    pub(super) fn new(row_ledger: &'a RowLedger<'b>) -> Self {
        let callers = &row_ledger.callers;
        let mut ids = HashMap::new();
        for process in row_ledger
            .ledger
            .live_processes()
            .chain(row_ledger.ledger.ended(true))
        {
            let groups = SiteGroups::of(process, true, callers);
            for (number, site) in (0..).zip(process.sites.iter()) {
                if let Some(caller) = site.caller {
                    let key = (process.pid, callers.caller_id(caller));
                    ids.insert(key, groups.id(number));
                }
            }
        }
        Self {
            callers,
            owners: Owners::new(callers),
            ids,
        }
    }

    /// Number in reports; of processes that have freed everything and are forgotten, the one that they would have.
    pub(super) fn site(&self, key: &StackKey) -> Option<u32> {
        let known = self.ids.get(&(key.pid, key.caller)).copied();
        let folded = || {
            let called = self.callers.called(key.caller);
            called.map(|_| self.callers.folded_id(key.caller))
        };
        known.or_else(folded)
    }

    fn document(&mut self, stack: &StackChanges, frames: &mut FrameTable) -> StackData {
        let key = &stack.key;
        let called = self.callers.called(key.caller).unwrap_or("?".into());
        StackData {
            pid: key.pid,
            site: self.site(key),
            kind: key.kind.name(),
            host: key.is_host,
            owner: Some(self.owner(key.caller)),
            stack: frames.stack(self.callers.caller(key.caller).0, Some(&called)),
            function: called.into_owned(),
            changes: stack.changes.iter().flat_map(BinChange::numbers).collect(),
        }
    }

    pub(super) fn owner(&mut self, caller: u32) -> String {
        let owner = self.owners.of_caller(caller).owner;
        self.owners.name(owner).to_owned()
    }

    pub(super) fn sites(&self, numbers: HashSet<u32>) -> Vec<SiteData> {
        let mut numbers: Vec<_> = numbers.into_iter().collect();
        numbers.sort_unstable();
        let called = |number: &u32| {
            let called = self.callers.called(*number).unwrap_or("?".into());
            (self.callers.caller(*number).0, called)
        };
        let stacks: Vec<_> = numbers.iter().map(called).collect();
        let stacks: Vec<_> = stacks
            .iter()
            .map(|(frames, called)| (frames.as_slice(), called.as_ref()))
            .collect();
        let labels = label::labels(&stacks);
        let sites = numbers.iter().zip(labels);
        sites.map(|(&id, label)| SiteData { id, label }).collect()
    }
}

/// The stacks of the document, those that allocated most first, and the place of each in it.
pub(super) fn stack_documents(
    stacks: &[StackChanges],
    names: &mut CallerNames<'_, '_>,
    frames: &mut FrameTable,
) -> (Vec<StackData>, Vec<usize>) {
    let mut order: Vec<_> = (0..stacks.len()).collect();
    order.sort_by_key(|&index| (Reverse(stacks[index].allocated()), index));
    let mut places = vec![0; stacks.len()];
    let mut documents = Vec::new();
    let mut rest: HashMap<_, usize> = HashMap::new();
    let mut merged: Vec<(usize, Vec<&StackChanges>)> = Vec::new();
    for (rank, &index) in order.iter().enumerate() {
        let stack = &stacks[index];
        let key = stack.key;
        if rank >= STACKS {
            let of_rest = (key.pid, key.kind as u8, key.is_host);
            if let Some(&place) = rest.get(&of_rest) {
                places[index] = merged[place].0;
                merged[place].1.push(stack);
                continue;
            }
            rest.insert(of_rest, merged.len());
            merged.push((documents.len(), vec![stack]));
        }
        places[index] = documents.len();
        documents.push(match rank >= STACKS {
            true => rest_of(stack),
            false => names.document(stack, frames),
        });
    }
    for (place, stacks) in merged {
        documents[place].changes = sum_changes(&stacks);
    }
    (documents, places)
}

/// The document of the stacks that are merged, which begins with `stack`.
fn rest_of(stack: &StackChanges) -> StackData {
    StackData {
        pid: stack.key.pid,
        site: None,
        kind: stack.key.kind.name(),
        host: stack.key.is_host,
        function: "(other call stacks)".to_owned(),
        owner: None,
        stack: Vec::new(),
        changes: Vec::new(),
    }
}

/// Sums of the changes of several stacks.
fn sum_changes(stacks: &[&StackChanges]) -> Vec<i64> {
    let mut sums: BTreeMap<i64, [i64; 9]> = BTreeMap::new();
    for change in stacks.iter().flat_map(|stack| &stack.changes) {
        let numbers = change.numbers();
        let sum = sums.entry(numbers[0]).or_insert([0; 9]);
        for (sum, number) in sum.iter_mut().zip(numbers).skip(1) {
            *sum = sum.saturating_add(number);
        }
        sum[0] = numbers[0];
    }
    sums.into_values().flatten().collect()
}
