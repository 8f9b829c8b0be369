//! Unwinding of copied stacks with DWARF CFI.

mod memory;
mod rule;
mod table;
pub(super) mod trampoline;

pub use memory::StackCopy;
pub use rule::UnwindRule;
pub(crate) use table::Tables;
pub use table::{FunctionRules, UnwindRow};

use std::sync::Arc;

use gpuprobe_model::stack::{CallStack, Location};
use memory::CopiedStack;
use rule::{Registers, RuleTarget};

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

/// Lookup of code in a process.
pub(super) trait ProcessCode {
    /// The location of `address`, if `lookup` is mapped. `lookup` is `address`, or one less for a return
    /// address.
    fn place(&mut self, address: u64, lookup: u64) -> Option<Location>;
    /// The unwind rule for `lookup`.
    fn rule(&mut self, lookup: u64) -> Option<Arc<UnwindRule>>;
    /// The unwind rule for `return_address` in anonymous code, from its instructions.
    fn trampoline(&mut self, return_address: u64) -> Option<Arc<UnwindRule>>;
}

/// A frame during unwinding.
struct UnwindFrame {
    registers: Registers,
    /// Address for the lookup of the unwind rule.
    lookup: u64,
    location: Location,
    is_innermost: bool,
    /// It was interrupted by a signal: it has made no call.
    is_interrupted: bool,
}

/// Unwinds `copy`, at most to [`DEPTH`] frames.
pub(super) fn unwind(code: &mut dyn ProcessCode, copy: &StackCopy<'_>) -> Unwound {
    let memory = CopiedStack(copy);
    let mut frame = innermost(code, copy);
    let mut unwound = Unwound::default();
    unwound.stack.locations.push(frame.location);
    while unwound.stack.locations.len() < DEPTH {
        let rule = code.rule(frame.lookup).or_else(|| frame.trampoline(code));
        // If a rule cannot be applied the copy has ended; guessing on would give wrong frames.
        let step = match rule {
            Some(rule) => rule.apply(&frame.registers, &memory),
            None => without_rule(code, &frame, &memory),
        };
        let Some(step) = step else {
            return unwound;
        };
        let RuleTarget::Caller {
            registers,
            return_address,
            slot,
            is_interrupted,
        } = step
        else {
            unwound.stack.is_complete = true;
            return unwound;
        };
        if return_address == 0 {
            unwound.stack.is_complete = true;
            return unwound;
        }
        // A signal handler may run on a stack of its own, above or below the thread's.
        if !is_interrupted && registers.sp() <= frame.registers.sp() {
            return unwound;
        }
        let lookup = return_address.wrapping_sub(u64::from(!is_interrupted));
        // Symbolisation looks up the byte before a location's address, as for a call. An interrupted function
        // has made no call, so its address is increased by one.
        let address = lookup.wrapping_add(1);
        let Some(location) = code.place(address, lookup) else {
            return unwound;
        };
        frame = UnwindFrame {
            registers,
            lookup,
            location,
            is_innermost: false,
            is_interrupted,
        };
        unwound.stack.locations.push(location);
        unwound.slots.push(slot);
    }
    unwound
}

/// The frame in which the stack was copied.
fn innermost(code: &mut dyn ProcessCode, copy: &StackCopy<'_>) -> UnwindFrame {
    let unknown = Location {
        address: copy.ip,
        module: None,
        offset: 0,
    };
    UnwindFrame {
        registers: Registers::new(copy.ip, copy.sp, copy.bp),
        lookup: copy.ip,
        location: code.place(copy.ip, copy.ip).unwrap_or(unknown),
        is_innermost: true,
        is_interrupted: false,
    }
}

impl UnwindFrame {
    fn trampoline(&self, code: &mut dyn ProcessCode) -> Option<Arc<UnwindRule>> {
        let has_called = !self.is_innermost && !self.is_interrupted;
        let is_in_no_file = self.location.module.is_none();
        (has_called && is_in_no_file).then(|| code.trampoline(self.location.address))?
    }
}

/// The caller without an unwind rule: by the return address at the stack pointer, or the frame pointer.
fn without_rule(
    code: &mut dyn ProcessCode,
    frame: &UnwindFrame,
    memory: &CopiedStack<'_>,
) -> Option<RuleTarget> {
    let sp = frame.registers.sp();
    let mut caller = |slot: u64, bp: Option<u64>| {
        let return_address = memory.return_address(slot)?;
        if return_address != 0 {
            code.place(return_address, return_address.wrapping_sub(1))?;
        }
        let sp = slot.checked_add(8)?;
        Some(RuleTarget::Caller {
            registers: frame.registers.called_from(return_address, sp, bp),
            return_address,
            slot,
            is_interrupted: false,
        })
    };
    let bp = frame.registers.bp();
    // Stacks are captured at function entry: nothing was pushed yet.
    if frame.is_innermost
        && let Some(step) = caller(sp, bp)
        && !matches!(
            step,
            RuleTarget::Caller {
                return_address: 0,
                ..
            }
        )
    {
        return Some(step);
    }
    let bp = bp?;
    if bp == 0 && frame.location.module.is_some() {
        // The ABI marks the outermost frame like this.
        return Some(RuleTarget::Outermost);
    }
    let is_above = bp >= sp && bp % 8 == 0;
    is_above.then_some(())?;
    caller(bp.checked_add(8)?, memory.word(bp))
}

/// Fuzzing entry point. Applies an untrusted rule to a small stack.
pub(crate) fn try_rule(rule: &UnwindRule) {
    let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let copy = StackCopy {
        ip: 0x1000,
        sp: 0x7f00_0000_0000,
        bp: 0x7f00_0000_0100,
        bytes: &bytes,
        replaced: &[],
    };
    let registers = Registers::new(copy.ip, copy.sp, copy.bp);
    let _ = rule.apply(&registers, &CopiedStack(&copy));
}

#[cfg(test)]
mod tests;
