//! Memory that processes share with others.

use super::super::imports::Export;
use super::{Ledger, MAX_SHARED};
use gpuprobe_cuda::{MemoryKind, Op};
use gpuprobe_model::event::Call;

impl Ledger {
    /// The exported memory that the call opens or imports, if a traced process has exported it: under an IPC handle
    /// of 64 bytes.
    pub(super) fn shared_by(&self, call: &Call) -> Option<Export> {
        let function = call.function;
        let opens = function.op == Op::ShareOpen || function.kind == MemoryKind::Imported;
        let detail = call.detail.as_deref().filter(|_| opens)?;
        self.shared.get(&detail.values).cloned()
    }

    pub(super) fn export(&mut self, call: &Call) {
        let Some(process) = self.processes.get_mut(call.pid) else {
            return;
        };
        let size = process.size_at(call.address);
        if let (Some(size_bytes), Some(detail)) = (size, &call.detail) {
            let exporter = process.as_exporter();
            if self.shared.len() >= MAX_SHARED {
                self.shared.clear();
            }
            let export = Export {
                size_bytes,
                exporter,
            };
            self.shared.insert(detail.values, export);
        }
    }
}
