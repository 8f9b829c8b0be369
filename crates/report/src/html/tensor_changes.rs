//! Blocks that allocators of frameworks allocate and free.

use std::collections::HashMap;

use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::event::Event;

/// Process, and device as the process numbers it.
pub(super) type Place = (u32, u16);

/// The most that each call site of tensors held.
#[derive(Default)]
pub(super) struct PeakBySite {
    live: TensorLedger,
    /// Bytes now and at most.
    pub(super) bytes: HashMap<(Place, u32), (u64, u64)>,
}

impl PeakBySite {
    pub(super) fn see(&mut self, event: &Event, ledger: &Ledger) {
        let Some(change) = self.live.see(event, ledger) else {
            return;
        };
        for (place, site, bytes, frees) in change.moved {
            let (now, most) = self.bytes.entry((place, site)).or_default();
            *now = match frees {
                true => now.saturating_sub(bytes),
                false => now.saturating_add(bytes),
            };
            *most = (*most).max(*now);
        }
    }
}

/// A block that was allocated or freed: its allocator, number of its call site, bytes, and whether it was freed.
pub(super) type Moved = (Place, u32, u64, bool);

/// Effect of an event on the blocks.
pub(super) struct MovedBlocks<'a> {
    pub(super) pid: u32,
    pub(super) time_ns: u64,
    pub(super) moved: Vec<Moved>,
    /// The process with its allocators.
    pub(super) process: Option<&'a Process>,
    pub(super) has_ended: bool,
}

/// The live blocks: allocator, call site and bytes by process and address.
#[derive(Default)]
pub(super) struct TensorLedger(HashMap<u32, HashMap<u64, (Place, u32, u64)>>);

impl TensorLedger {
    /// Effect of an event; `None` if it is not about memory.
    pub(super) fn see<'a>(&mut self, event: &Event, ledger: &'a Ledger) -> Option<MovedBlocks<'a>> {
        let (pid, time_ns, moved, has_ended) = match event {
            Event::Tensor(tensor) => {
                let live = self.0.entry(tensor.pid).or_default();
                let gone = live.remove(&tensor.address);
                let mut moved: Vec<Moved> = gone
                    .map(|(place, site, bytes)| (place, site, bytes, true))
                    .into_iter()
                    .collect();
                let process = ledger.process_of(tensor.pid);
                let at = process.and_then(|process| process.tensors.site_at(tensor.address));
                if let Some((device, site)) = at.filter(|_| !tensor.is_free) {
                    let place = (tensor.pid, device);
                    live.insert(tensor.address, (place, site, tensor.bytes));
                    moved.push((place, site, tensor.bytes, false));
                }
                (tensor.pid, tensor.time_ns, moved, false)
            }
            // Segments may go back to CUDA.
            Event::Call(call) => (call.pid, call.end_ns, Vec::new(), false),
            // What a process held is live at the end of its time.
            Event::Exit(task) | Event::Exec(task) => {
                self.0.remove(&task.pid)?;
                (task.pid, task.time_ns, Vec::new(), true)
            }
            _ => return None,
        };
        let ended = || ledger.ended(true).find(|process| process.pid == pid);
        Some(MovedBlocks {
            pid,
            time_ns,
            moved,
            process: ledger.process_of(pid).or_else(ended),
            has_ended,
        })
    }
}
