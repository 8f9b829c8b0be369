//! A process whose stack is unwound.

use super::super::helper::{ProcessMemory, ProcessReader};
use super::super::unwind::{ProcessCode, UnwindRule, trampoline};
use super::{AddressSpaces, MAX_PEEKS};
use gpuprobe_model::stack::Location;
use std::cell::OnceCell;
use std::sync::Arc;

/// Reads the beginning of anonymous executable mappings of a process.
pub(super) struct Peeks<'a> {
    pid: u32,
    left: u32,
    reader: &'a ProcessReader,
    memory: OnceCell<ProcessMemory>,
}

impl<'a> Peeks<'a> {
    pub(super) fn new(pid: u32, reader: &'a ProcessReader) -> Self {
        Self {
            pid,
            left: MAX_PEEKS,
            reader,
            memory: OnceCell::new(),
        }
    }

    /// The unwind rule of trampolines at `address`, if there are any.
    pub(super) fn at(&mut self, address: u64) -> Option<Arc<UnwindRule>> {
        self.left = self.left.checked_sub(1)?;
        let memory = self.memory.get_or_init(|| self.reader.memory(self.pid));
        let mut code = [0; trampoline::WHOLE];
        let code = memory.read(address, &mut code)?;
        trampoline::beginning_of(code).map(Arc::new)
    }
}

/// One process, as seen by the unwinder.
pub(super) struct UnwoundProcess<'a> {
    pub(super) pid: u32,
    pub(super) spaces: &'a mut AddressSpaces,
    pub(super) memory: OnceCell<ProcessMemory>,
}

impl ProcessCode for UnwoundProcess<'_> {
    fn place(&mut self, address: u64, lookup: u64) -> Option<Location> {
        let found = self.spaces.find(self.pid, address, lookup);
        found.map(|(location, _)| location)
    }

    fn rule(&mut self, lookup: u64) -> Option<Arc<UnwindRule>> {
        let (location, module) = self.spaces.find(self.pid, lookup, lookup)?;
        let module = module?;
        let segments = &module.headers().ok()?.segments;
        let address = segments.address_of(location.offset)?;
        let AddressSpaces { modules, rules, .. } = &mut *self.spaces;
        rules.at(modules.reader(), &module, address)
    }

    fn trampoline(&mut self, return_address: u64) -> Option<Arc<UnwindRule>> {
        let AddressSpaces {
            processes, memory, ..
        } = &mut *self.spaces;
        let space = processes.get_mut(&self.pid)?;
        let range = space.range(return_address.wrapping_sub(1))?;
        range.is_anonymous.then_some(())?;
        let of_mapping = range.trampolines.clone();
        if let Some(known) = space.known_trampoline(return_address) {
            return known;
        }
        let memory = self.memory.get_or_init(|| memory.memory(self.pid));
        let mut code = [0; trampoline::AFTER_CALL];
        let rule = match memory.read(return_address, &mut code) {
            Some(code) => trampoline::after_call(code).map(Arc::new),
            None => of_mapping,
        };
        space.trampolines.insert(return_address, rule.clone());
        rule
    }
}
