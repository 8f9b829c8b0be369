//! Memory over time by kind, call site and owner.

use std::collections::HashMap;

use anyhow::Result;

use super::document::{Timeline, Timelines};
use super::memory::own_caller;
use crate::analysis::{AllocationWithCaller, LedgerChange, RowLedger, Visitor};
use crate::plot::Steps;
use gpuprobe_cuda::MemoryKind;

/// Labels of the areas of a grouping, and the area of each caller.
#[derive(Debug, Default)]
pub(super) struct Areas {
    pub(super) labels: Vec<String>,
    pub(super) by_caller: HashMap<u32, usize>,
}

/// Collects the three timelines.
pub(super) struct MemoryOverTime {
    kind: Steps,
    site: (Areas, Steps),
    owner: (Areas, Steps),
}

impl MemoryOverTime {
    /// Callers without an area are added to the last one.
    pub(super) fn new(site: Areas, owner: Areas) -> Self {
        let steps = |areas: Areas| {
            let steps = Steps::new(areas.labels.len());
            (areas, steps)
        };
        Self {
            kind: Steps::new(MemoryKind::COUNT),
            site: steps(site),
            owner: steps(owner),
        }
    }

    pub(super) fn into_document(self) -> Timelines {
        let kinds: Vec<_> = MemoryKind::ALL
            .iter()
            .map(|kind| kind.name().to_owned())
            .collect();
        Timelines {
            kind: timeline(&self.kind, &kinds),
            site: timeline(&self.site.1, &self.site.0.labels),
            owner: timeline(&self.owner.1, &self.owner.0.labels),
        }
    }

    fn move_bytes(&mut self, part: &AllocationWithCaller, row_ledger: &RowLedger<'_>, adds: bool) {
        let bytes = part.allocation.size_bytes;
        let caller = own_caller(part.caller, row_ledger);
        let enter = |steps: &mut Steps, area: usize| match adds {
            true => steps.add(area, bytes),
            false => steps.subtract(area, bytes),
        };
        enter(&mut self.kind, part.allocation.kind() as usize);
        for (areas, steps) in [&mut self.site, &mut self.owner] {
            let last = areas.labels.len().saturating_sub(1);
            let area = areas.by_caller.get(&caller).copied().unwrap_or(last);
            enter(steps, area);
        }
    }
}

impl Visitor for MemoryOverTime {
    fn change(&mut self, step: &LedgerChange<'_>, row_ledger: &RowLedger<'_>) -> Result<()> {
        let is_shown = |part: &&AllocationWithCaller| !part.is_host();
        if !step.parts().any(|part| is_shown(&part)) {
            return Ok(());
        }
        for part in step.freed.iter().filter(is_shown) {
            self.move_bytes(part, row_ledger, false);
        }
        for part in step.allocated.iter().filter(is_shown) {
            self.move_bytes(part, row_ledger, true);
        }
        for steps in [&mut self.kind, &mut self.site.1, &mut self.owner.1] {
            steps.mark(step.time_ns);
        }
        Ok(())
    }

    fn can_restart(&self) -> bool {
        true
    }

    fn restart(&mut self) -> Result<()> {
        for steps in [&mut self.kind, &mut self.site.1, &mut self.owner.1] {
            *steps = Steps::new(steps.bands());
        }
        Ok(())
    }
}

/// The areas in which something ever is, in the order of their labels.
pub(super) fn timeline(steps: &Steps, labels: &[String]) -> Timeline {
    let mut timeline = Timeline {
        times_ns: steps.points().map(|point| point.time_ns).collect(),
        ..Timeline::default()
    };
    for (index, label) in labels.iter().enumerate() {
        let value = |values: &Vec<u64>| values.get(index).copied().unwrap_or(0);
        let values: Vec<_> = steps.points().map(|point| value(&point.values)).collect();
        if values.iter().any(|&bytes| bytes > 0) {
            timeline.labels.push(label.clone());
            timeline.values.push(values);
        }
    }
    timeline
}
