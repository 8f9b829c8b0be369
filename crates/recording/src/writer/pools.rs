//! What is done to pools of stream-ordered memory.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::insert::Insert;
use crate::ids::global_pid;
use gpuprobe_cuda::Op;
use gpuprobe_model::event::Call;

/// `operationType`, of `ENUM_CUDA_MEMPOOL_OPER`.
const CREATED: i64 = 1;
const DESTROYED: i64 = 2;
const TRIMMED: i64 = 3;
/// `poolType`, of `ENUM_CUDA_MEMPOOL_TYPE`.
const LOCAL: i64 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`; the calls of old say nothing, and mean that.
const AT_DEVICE: u64 = 1;

/// Where a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Device(u16),
    /// At a device that is not known.
    Unknown,
    /// Such pools have no place in a table of GPU memory.
    Host,
}

/// Whether successful calls of this kind become events.
pub(super) fn has_event(op: Op) -> bool {
    matches!(op, Op::PoolCreate | Op::PoolDestroy | Op::PoolTrim)
}

/// Writes the events of pools.
pub(super) struct Pools<'c> {
    events: Insert<'c>,
    /// By process and handle.
    places: HashMap<(u32, u64), Place>,
}

impl<'c> Pools<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            events: Insert::into(connection, "CUDA_GPU_MEMORY_POOL_EVENTS"),
            places: HashMap::new(),
        }
    }

    /// A process has ended, or runs another program.
    pub(super) fn ended(&mut self, pid: u32) {
        self.places.retain(|(of, _), _| *of != pid);
    }

    /// Enters a call with this number and these times. `device` is the device that it names.
    pub(super) fn called(
        &mut self,
        call: &Call,
        device: Option<u16>,
        correlation: i64,
        (start, end): (i64, i64),
    ) -> rusqlite::Result<()> {
        if call.result != 0 {
            return Ok(());
        }
        let key = (call.pid, call.address);
        let told = match call.stream() {
            0 | AT_DEVICE => device.map_or(Place::Unknown, Place::Device),
            _ => Place::Host,
        };
        let (operation, time, place) = match call.function.op {
            Op::PoolCreate => {
                self.places.insert(key, told);
                (CREATED, end, told)
            }
            Op::PoolOfDevice | Op::PoolSet => {
                self.places.entry(key).or_insert(told);
                return Ok(());
            }
            Op::PoolDestroy => {
                let place = self.places.remove(&key).unwrap_or(Place::Unknown);
                (DESTROYED, start, place)
            }
            Op::PoolTrim => {
                let place = self.places.get(&key).copied().unwrap_or(Place::Unknown);
                (TRIMMED, end, place)
            }
            _ => return Ok(()),
        };
        let device = match place {
            Place::Device(device) => device,
            // The column cannot be NULL.
            Place::Unknown => 0,
            Place::Host => return Ok(()),
        };
        let kept = (operation == TRIMMED).then_some(call.size_bytes.cast_signed());
        let nothing: Option<i64> = None;
        self.events.row(params![
            time,
            global_pid(call.pid),
            device,
            call.address.cast_signed(),
            operation,
            LOCAL,
            correlation,
            kept,
            nothing,
            nothing,
            nothing
        ])
    }
}
