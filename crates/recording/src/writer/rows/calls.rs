//! Rows of API calls and their changes.

use super::super::activity::ProbedCall;
use super::super::tables::signed;
use super::Rows;
use crate::ids::{context_id, global_pid};
use crate::kinds;
use crate::memory_rows::CALLS;
use gpuprobe_cuda::nsys::class;
use gpuprobe_cuda::{Belongs, Function, Layer, Op};
use gpuprobe_engine::{Change, MemoryBlock};
use gpuprobe_model::event::Call;
use rusqlite::types::Null;
use rusqlite::{Result, params};

/// Values of the column `memoryOperationType`.
const ALLOCATION: i64 = 0;
const DEALLOCATION: i64 = 1;

/// `operationType`, of `ENUM_CUDA_MEMPOOL_OPER`.
const CREATED: i64 = 1;
const DESTROYED: i64 = 2;
const TRIMMED: i64 = 3;
/// `poolType`, of `ENUM_CUDA_MEMPOOL_TYPE`.
const LOCAL: i64 = 1;

impl Rows<'_> {
    pub(super) fn memory_call(&mut self, call: &Call, changes: &[Change]) -> Result<()> {
        let allocates = |change: &Change| matches!(change, Change::Allocated(_));
        let allocates = changes.iter().any(allocates);
        let (thread, times) = ((call.pid, call.tid), (call.start_ns, call.end_ns));
        let chain = self.chains.id(call.pid, call.stack);
        let row = self.call(call.function, call.result, thread, times, chain, allocates)?;
        if self.modes.cudatrace {
            self.launches
                .add_graph_launch(call, (self.tables.correlation, row));
        }
        self.contexts.called(call, &mut self.tables)?;
        changes
            .iter()
            .try_for_each(|change| self.change(change, call))
    }

    /// Writes a call of a thread of a process, with its entry and return on `CLOCK_MONOTONIC` and the `callchainId` of
    /// its call stack, and returns its row. Its number is [`Tables::correlation`](super::Tables::correlation).
    pub(super) fn call(
        &mut self,
        function: &Function,
        result: i32,
        (pid, tid): (u32, u32),
        (start_ns, end_ns): (u64, u64),
        chain: Option<i64>,
        allocates: bool,
    ) -> Result<i64> {
        self.tables.correlation += 1;
        let number = self.tables.correlation;
        let name = self.tables.string(function.symbol)?;
        let is_runtime = function.layer == Layer::Runtime;
        let class = match is_runtime {
            true => class::RUNTIME,
            false => class::DRIVER,
        };
        let thread = self.tables.thread(pid, tid)?;
        let (start, end) = (self.tables.time(start_ns), self.tables.time(end_ns));
        // As in nsys exports, that of an allocation by the runtime is in a second row: scripts for
        // exports expect it there.
        let apart = chain.filter(|_| is_runtime && allocates);
        let own = chain.filter(|_| apart.is_none());
        let connection = self.tables.connection;
        let mut insert = |class: i64, chain: Option<i64>| {
            let row = params![start, end, class, thread, number, name, result, chain];
            self.tables.insert(CALLS, row)
        };
        insert(class, own)?;
        let row = connection.last_insert_rowid();
        if apart.is_some() {
            insert(class::BACKTRACE, apart)?;
        }
        if let Some(activities) = &mut self.activities {
            let probed = ProbedCall {
                end_ns,
                number,
                function: name,
                class,
                chain,
            };
            activities.calls.probed.add((pid, tid), start_ns, probed);
        }
        Ok(row)
    }

    /// Writes a change by `call`.
    fn change(&mut self, change: &Change, call: &Call) -> Result<()> {
        let (start, end) = (
            self.tables.time(call.start_ns),
            self.tables.time(call.end_ns),
        );
        let number = self.tables.correlation;
        let pid = call.pid;
        match change {
            Change::Allocated(block) => self.memory(pid, block, (end, ALLOCATION, Some(number))),
            Change::Freed(block) => self.memory(pid, block, (start, DEALLOCATION, Some(number))),
            // The address was reused: its own free has been entered but has not returned yet.
            Change::Superseded(block) => self.memory(pid, block, (end, DEALLOCATION, None)),
            Change::UnknownFree(address) => {
                let row = params![number, start, global_pid(pid), signed(*address)];
                self.tables.insert("GPUPROBE_UNMATCHED_FREES", row)
            }
            Change::Pool(device) => self.pool(call, *device, (start, end)),
            _ => Ok(()),
        }
    }

    fn memory(
        &mut self,
        pid: u32,
        block: &MemoryBlock,
        (time, operation, correlation): (i64, i64, Option<i64>),
    ) -> Result<()> {
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
        let row = params![
            time,
            global_pid(pid),
            device,
            context_id(device, allocation.context),
            signed(allocation.address),
            0,
            signed(allocation.size_bytes),
            kind,
            operation,
            origin.and_then(|origin| origin.variable.as_deref()),
            correlation,
            Null,
            origin.and_then(|origin| origin.pool).map(signed),
            Null,
            origin.and_then(|origin| origin.reserved_bytes).map(signed)
        ];
        self.tables.insert("CUDA_GPU_MEMORY_USAGE_EVENTS", row)
    }

    /// Writes the event of a call on a stream-ordered memory pool of `device`.
    fn pool(&mut self, call: &Call, device: Option<u16>, (start, end): (i64, i64)) -> Result<()> {
        let (operation, time) = match call.function.op {
            Op::PoolCreate => (CREATED, end),
            Op::PoolDestroy => (DESTROYED, start),
            _ => (TRIMMED, end),
        };
        let kept = (operation == TRIMMED).then_some(call.size_bytes.cast_signed());
        let number = self.tables.correlation;
        let row = params![
            time,
            global_pid(call.pid),
            // The column is NOT NULL.
            device.unwrap_or(0),
            call.address.cast_signed(),
            operation,
            LOCAL,
            number,
            kept
        ];
        self.tables.insert("CUDA_GPU_MEMORY_POOL_EVENTS", row)
    }
}
