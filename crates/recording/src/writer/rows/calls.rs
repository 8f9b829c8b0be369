//! Rows of API calls and their changes.

use super::super::activity::Seen;
use super::super::common::signed;
use super::super::pools::{self};
use super::{Does, Rows, StackSlot};
use crate::ids::{context_id, global_pid};
use crate::kinds;
use gpuprobe_cuda::Function;
use gpuprobe_cuda::nsys::class;
use gpuprobe_cuda::{Belongs, Layer};
use gpuprobe_engine::{Change, MemoryBlock};
use gpuprobe_model::event::Call;
use rusqlite::params;

/// Values of the column `memoryOperationType`.
const ALLOCATION: i64 = 0;
const DEALLOCATION: i64 = 1;

impl Rows<'_> {
    pub(super) fn memory_call(&mut self, call: &Call, changes: &[Change]) -> rusqlite::Result<()> {
        let has_rows = |change: &Change| !matches!(change, Change::Incident(_) | Change::Held(_));
        let allocates = |change: &Change| matches!(change, Change::Allocated(_));
        let does = match changes {
            some if some.iter().any(allocates) => Does::Allocates,
            some if some.iter().any(has_rows) || pools::has_event(call.function.op) => {
                Does::Something
            }
            _ => Does::Nothing,
        };
        let is_apart = call.function.layer == Layer::Runtime && does == Does::Allocates;
        let stack = match self.chains.id(call.pid, call.stack) {
            None => StackSlot::None,
            Some(chain) if is_apart => StackSlot::Apart(chain),
            Some(chain) => StackSlot::OfCall(chain),
        };
        self.call(
            call.row,
            call.function,
            call.result,
            (call.pid, call.tid),
            (call.start_ns, call.end_ns),
            (stack, does),
        )?;
        if self.modes.cudatrace {
            let row = self.connection.last_insert_rowid();
            self.launches
                .add_graph_launch(call, (self.common.correlation, row));
        }
        let end = self.time(call.end_ns);
        self.contexts.called(call, end)?;
        changes
            .iter()
            .try_for_each(|change| self.change(change, call))
    }

    pub(super) fn call(
        &mut self,
        row: u16,
        function: &Function,
        result: i32,
        (pid, tid): (u32, u32),
        (start_ns, end_ns): (u64, u64),
        (stack, does): (StackSlot, Does),
    ) -> rusqlite::Result<()> {
        let number = self.common.number();
        let name = match self.names.get(usize::from(row)).copied().flatten() {
            Some(name) => name,
            None => {
                let name = self.common.strings.id(function.symbol)?;
                if let Some(slot) = self.names.get_mut(usize::from(row)) {
                    *slot = Some(name);
                }
                name
            }
        };
        let class = if function.layer == Layer::Runtime {
            class::RUNTIME
        } else {
            class::DRIVER
        };
        let thread = self.common.thread(pid, tid)?;
        let (start, end) = (self.time(start_ns), self.time(end_ns));
        let of_call = match stack {
            StackSlot::OfCall(chain) => Some(chain),
            StackSlot::None | StackSlot::Apart(_) => None,
        };
        self.calls.row(params![
            start, end, class, thread, number, name, result, of_call
        ])?;
        if let Some(activities) = &mut self.activities {
            let seen = Seen {
                start_ns,
                end_ns: end_ns.max(start_ns),
                row: self.connection.last_insert_rowid(),
                number,
                name,
                function: name,
                class,
                result: result.into(),
                chain: stack.chain(),
                has_twin: matches!(stack, StackSlot::Apart(_)),
                allocates: does == Does::Allocates,
                has_rows: does != Does::Nothing,
                from_cupti: false,
            };
            activities.seen(pid, tid, seen);
        }
        if let StackSlot::Apart(chain) = stack {
            let class = class::BACKTRACE;
            self.calls.row(params![
                start, end, class, thread, number, name, result, chain
            ])?;
        }
        Ok(())
    }

    /// Writes a change by `call`.
    fn change(&mut self, change: &Change, call: &Call) -> rusqlite::Result<()> {
        let (start, end) = (self.time(call.start_ns), self.time(call.end_ns));
        let number = self.common.correlation;
        let pid = call.pid;
        match change {
            Change::Allocated(block) => self.memory(pid, block, (end, ALLOCATION, Some(number))),
            Change::Freed(block) => self.memory(pid, block, (start, DEALLOCATION, Some(number))),
            // The address was reused: its own free has been entered but has not returned yet.
            Change::Superseded(block) => self.memory(pid, block, (end, DEALLOCATION, None)),
            Change::UnknownFree(address) => {
                self.unmatched
                    .row(params![number, start, global_pid(pid), signed(*address)])
            }
            Change::Pool(device) => self.pools.event(call, *device, number, (start, end)),
            Change::Copied(..) | Change::Named(..) | Change::Incident(_) | Change::Held(_) => {
                Ok(())
            }
        }
    }

    fn memory(
        &mut self,
        pid: u32,
        block: &MemoryBlock,
        (time, operation, correlation): (i64, i64, Option<i64>),
    ) -> rusqlite::Result<()> {
        let allocation = &block.allocation;
        if !self.counted.contains(allocation.kind()) {
            return Ok(());
        }
        let device = self.contexts.device(pid, allocation.device());
        self.unknown_devices += u64::from(device.is_none() && operation == ALLOCATION);
        // The column is NOT NULL; GPUPROBE_META has the number of unknown devices.
        let device = device.unwrap_or(0);
        let kind = match allocation.belongs() {
            Belongs::Gpu => kinds::of(allocation.kind()).id,
            Belongs::Host => kinds::PINNED,
            // It is counted in the process or API that allocated it.
            Belongs::Elsewhere => return Ok(()),
        };
        let origin = block.origin.as_deref();
        let nothing: Option<i64> = None;
        self.memory.row(params![
            time,
            global_pid(pid),
            device,
            context_id(device, allocation.context()),
            signed(allocation.address),
            0,
            signed(allocation.size_bytes),
            kind,
            operation,
            origin.and_then(|origin| origin.variable.as_deref()),
            correlation,
            nothing,
            origin.and_then(|origin| origin.pool).map(signed),
            nothing,
            origin.and_then(|origin| origin.reserved_bytes).map(signed),
            nothing,
            nothing,
            nothing
        ])
    }
}
