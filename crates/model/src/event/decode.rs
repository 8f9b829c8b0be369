//! Conversion of raw records to events.

use super::{
    Call, Copy, Detail, KernelName, MAX_DEVICES, OutOfMemory, Task, Tensor, TensorRequest,
};
use crate::abi::{
    ANY_DEVICE, CALL_CAPTURED, RawCall, RawCopy, RawDetail, RawKernel, RawRequest, RawTask,
    RawTensor,
};
use gpuprobe_cuda::Op;

impl Call {
    pub(super) fn new(raw: &RawCall) -> Option<Self> {
        let function = gpuprobe_cuda::function(raw.row)
            .filter(|f| f.op.is_memory() || f.op.is_ledger_event())?;
        Some(Self {
            row: raw.row,
            function,
            result: raw.result,
            pid: raw.tgid,
            tid: raw.tid,
            start_ns: raw.start_ns,
            end_ns: raw.end_ns,
            address: raw.address,
            size_bytes: raw.size,
            device: u16::try_from(raw.device).ok().filter(|&d| d < MAX_DEVICES),
            context: raw.context,
            captured: raw.flags & CALL_CAPTURED != 0,
            stack: raw.stack,
            detail: None,
        })
    }

    pub(super) fn detailed(raw: &RawDetail, name: Option<String>) -> Option<Self> {
        let detail = Detail {
            out: raw.out,
            stream: raw.stream,
            values: raw.values,
            name: name.filter(|name| !name.is_empty()),
        };
        Some(Self {
            detail: Some(Box::new(detail)),
            ..Self::new(&raw.call)?
        })
    }

    /// The extra value at `index`; 0 if there is none.
    pub fn value(&self, index: usize) -> u64 {
        let detail = self.detail.as_deref();
        detail.map_or(0, |d| d.values.get(index).copied().unwrap_or(0))
    }

    /// The value that the call wrote to the location of [`Function::out`]; 0 if it was not sent.
    pub fn out(&self) -> u64 {
        self.detail.as_deref().map_or(0, |d| d.out)
    }

    /// The stream handle, see [`Function::stream`]; 0 if it was not sent.
    pub fn stream(&self) -> u64 {
        self.detail.as_deref().map_or(0, |d| d.stream)
    }
}

impl Tensor {
    pub(super) fn new(raw: &RawTensor) -> Option<Self> {
        gpuprobe_cuda::function(raw.row).filter(|f| f.op == Op::Tensor)?;
        Some(Self {
            row: raw.row,
            pid: raw.tgid,
            tid: raw.tid,
            time_ns: raw.time_ns,
            address: raw.address,
            bytes: raw.bytes.unsigned_abs(),
            is_free: raw.bytes < 0,
            allocated_bytes: raw.allocated,
            reserved_bytes: raw.held,
            device: (raw.device != ANY_DEVICE).then_some(raw.device),
            stack: raw.stack,
        })
    }

    /// Address of the allocator, if the event has that and no sums.
    pub fn allocator(&self) -> Option<u64> {
        (self.device.is_none() && self.allocated_bytes > 0).then_some(self.allocated_bytes)
    }

    /// Bytes that were asked for, if the event has these.
    pub fn requested_bytes(&self) -> Option<u64> {
        (self.device.is_none() && self.reserved_bytes > 0).then_some(self.reserved_bytes)
    }
}

impl From<&RawTensor> for OutOfMemory {
    fn from(raw: &RawTensor) -> Self {
        Self {
            row: raw.row,
            pid: raw.tgid,
            tid: raw.tid,
            time_ns: raw.time_ns,
            bytes: raw.bytes.unsigned_abs(),
            allocated_bytes: raw.allocated,
            reserved_bytes: raw.held,
            device: (raw.device != ANY_DEVICE).then_some(raw.device),
            stack: raw.stack,
        }
    }
}

impl From<&RawRequest> for TensorRequest {
    fn from(raw: &RawRequest) -> Self {
        Self {
            pid: raw.tgid,
            address: raw.address,
            bytes: raw.bytes,
            stream: raw.stream,
        }
    }
}

impl KernelName {
    pub(super) fn new(raw: &RawKernel, name: &[u8]) -> Option<Self> {
        gpuprobe_cuda::function(raw.key.row)?;
        let name = text(name);
        Some(Self {
            pid: raw.tgid,
            key: raw.key,
            given: raw.given != 0,
            name: (!name.is_empty()).then_some(name),
            grid: raw.grid,
            block: raw.block,
        })
    }
}

impl Copy {
    pub(super) fn new(raw: &RawCopy) -> Option<Self> {
        let function = gpuprobe_cuda::function(raw.row).filter(|f| f.op.is_copy())?;
        Some(Self {
            row: raw.row,
            function,
            result: raw.result,
            pid: raw.tgid,
            tid: raw.tid,
            start_ns: raw.start_ns,
            end_ns: raw.end_ns,
            bytes: raw.bytes,
            destination: raw.destination,
            source: raw.source,
            kind: raw.kind,
            destination_type: raw.second,
            captured: raw.captured != 0,
            stack: raw.stack,
        })
    }
}

/// The text before the first zero byte; invalid UTF-8 is replaced.
pub fn text(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

impl From<&RawTask> for Task {
    fn from(raw: &RawTask) -> Self {
        Self {
            pid: raw.tgid,
            tid: raw.tid,
            uid: raw.uid,
            time_ns: raw.time_ns,
            process: raw.process,
            from_birth: raw.from_birth != 0,
            inner_pid: raw.inner_pid,
            cgroup: raw.cgroup,
            comm: text(&raw.comm),
        }
    }
}
