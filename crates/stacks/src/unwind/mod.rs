//! Unwinding of copied stacks with DWARF CFI.

mod rule;
mod table;
pub(super) mod trampoline;

pub use rule::UnwindRule;
pub(crate) use table::Tables;
pub use table::{FunctionRules, UnwindRow};

use std::sync::Arc;

use gpuprobe_model::stack::{CallStack, Location};
use rule::{BP, SP, StackFrame};

/// Maximum number of frames; deeper ones are cut.
pub const DEPTH: usize = 1024;

/// The result of unwinding a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwound {
    /// The call stack, innermost first.
    pub stack: CallStack,
    /// For each location but the first, the stack address of its return address; 0 if it was in a
    /// register.
    pub slots: Vec<u64>,
}

/// Registers of a thread and a copy of the top of its stack.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// Instruction pointer of the frame.
    pub ip: u64,
    /// The stack pointer, the address of the first byte of `bytes`.
    pub sp: u64,
    /// The register for the frame pointer, which may have any value.
    pub bp: u64,
    /// Memory from the stack pointer upwards.
    pub bytes: &'a [u8],
    /// Stack slots whose return address a uretprobe replaced by its trampoline, with the original return
    /// addresses.
    pub replaced: &'a [(u64, u64)],
}

impl StackCopy<'_> {
    /// A little-endian number of `size` bytes.
    fn number(&self, address: u64, size: u8) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(self.sp)?).ok()?;
        let end = start.checked_add(usize::from(size))?;
        let bytes = self.bytes.get(start..end)?;
        let mut word = [0; 8];
        word.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.number(address, 8)
    }

    /// The return address at `address`; the original one if a uretprobe replaced it.
    fn return_address(&self, address: u64) -> Option<u64> {
        let replaced = self.replaced.iter().find(|(slot, _)| *slot == address);
        replaced.map_or_else(|| self.word(address), |&(_, original)| Some(original))
    }
}

/// Lookup of code in a process.
pub(super) trait ProcessCode {
    /// The location of `address`, if `lookup` is mapped. `lookup` is `address`, or one less for a return
    /// address.
    fn place(&mut self, address: u64, lookup: u64) -> Option<Location>;
    /// The unwind rule for `lookup`; one of code in no file is that of a frame that has made a call.
    fn rule(&mut self, lookup: u64, has_called: bool) -> Option<Arc<UnwindRule>>;
}

/// Unwinds `stack`, at most to [`DEPTH`] frames.
pub(super) fn unwind(code: &mut dyn ProcessCode, stack: &StackCopy<'_>) -> Unwound {
    let mut frame = StackFrame::innermost(stack);
    let mut lookup = stack.ip;
    let unknown = Location {
        address: stack.ip,
        module: None,
        offset: 0,
    };
    let mut location = code.place(stack.ip, stack.ip).unwrap_or(unknown);
    let mut unwound = Unwound::default();
    unwound.stack.locations.push(location);
    while unwound.stack.locations.len() < DEPTH {
        // If a rule cannot be applied the copy has ended; guessing on would give wrong frames.
        let caller = match code.rule(lookup, frame.has_called) {
            Some(rule) => rule.apply(&frame, stack),
            None => {
                let is_innermost = unwound.slots.is_empty();
                without_rule(code, stack, &frame, (is_innermost, location))
            }
        };
        let Some(caller) = caller else {
            return unwound;
        };
        if caller.ip() == 0 {
            unwound.stack.is_complete = true;
            return unwound;
        }
        // A signal handler may run on a stack of its own, above or below the thread's.
        if caller.has_called && caller.registers[SP] <= frame.registers[SP] {
            return unwound;
        }
        lookup = caller.ip().wrapping_sub(u64::from(caller.has_called));
        // Symbolisation looks up the byte before a location's address, as for a call. An interrupted function
        // has made no call, so its address is increased by one.
        let Some(place) = code.place(lookup.wrapping_add(1), lookup) else {
            return unwound;
        };
        (frame, location) = (caller, place);
        unwound.stack.locations.push(location);
        unwound.slots.push(frame.slot);
    }
    unwound
}

/// The caller without an unwind rule: by the return address at the stack pointer, or the frame pointer.
fn without_rule(
    code: &mut dyn ProcessCode,
    stack: &StackCopy<'_>,
    frame: &StackFrame,
    (is_innermost, location): (bool, Location),
) -> Option<StackFrame> {
    let mut caller = |slot: u64, bp: Option<u64>| {
        let ip = stack.return_address(slot)?;
        if ip != 0 {
            code.place(ip, ip.wrapping_sub(1))?;
        }
        Some(frame.caller(ip, slot, bp))
    };
    let (sp, bp) = (frame.registers[SP]?, frame.registers[BP]);
    // Stacks are captured at function entry: nothing was pushed yet.
    let begun = is_innermost.then(|| caller(sp, bp)).flatten();
    if begun.is_some_and(|caller| caller.ip() != 0) {
        return begun;
    }
    let bp = bp?;
    if bp == 0 && location.module.is_some() {
        // The ABI marks the outermost frame like this.
        return Some(frame.caller(0, 0, None));
    }
    let is_above = bp >= sp && bp % 8 == 0;
    is_above.then_some(())?;
    caller(bp.checked_add(8)?, stack.word(bp))
}

#[cfg(test)]
mod tests;
