//! Memory that processes share with others.

use std::rc::Rc;
use hashbrown::HashMap;
use super::super::addresses::{AddressIndex, Whereabouts};
use super::super::allocation::key;
use super::super::calls::Effect;
use super::super::change::{Change, Changes};
use super::super::ended::{EndedProcesses, Forgotten};
use super::super::imports::Export;
use super::super::incidents::Incidents;
use super::super::process::Process;
use super::super::process_table::Living;
use super::super::shares::{UserShares, UserUsage};
use super::super::totals::MemorySums;
use super::super::{CallSite, Identity};
use gpuprobe_cuda::{EXTRA, FUNCTIONS, KindSet, MemoryKind, Op};
use gpuprobe_model::UserLoss;
use gpuprobe_model::event::{AboutMemory, Call, Event, Task};
use gpuprobe_model::stack::CallStack;
use super::{Ledger, MAX_SHARED};

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
