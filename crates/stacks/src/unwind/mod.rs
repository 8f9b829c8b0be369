//! Unwinding a copied stack.

mod memory;
mod rule;
mod table;
pub(super) mod trampoline;

pub use memory::StackCopy;
pub use rule::Rule;
pub(crate) use table::Tables;

use std::sync::Arc;

use gpuprobe_model::stack::{CallStack, Location};
use memory::Memory;
use rule::{Registers, Step};

/// Frames of a stack; what is deeper is left out.
pub const DEPTH: usize = 1024;

/// A stack that was unwound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwound {
    /// The stack.
    pub stack: CallStack,
    /// For each location but the first: the address in the stack at which its return address
    /// lies; 0 if it was in none.
    pub slots: Vec<u64>,
}

/// The code of a process, as unwinding needs it.
pub(super) trait Code {
    /// The place of the code at `address`, if some is mapped there; `lookup` is the address in
    /// question, one less where `address` is one that a call returns to.
    fn place(&mut self, address: u64, lookup: u64) -> Option<Location>;
    /// How to unwind from `lookup`.
    fn rule(&mut self, lookup: u64) -> Option<Arc<Rule>>;
    /// How to unwind from `return_address`, which is in code of no file, by its instructions.
    fn trampoline(&mut self, return_address: u64) -> Option<Arc<Rule>>;
}

/// A frame, on the way out.
struct Frame {
    registers: Registers,
    /// The address whose rule counts.
    lookup: u64,
    location: Location,
    is_innermost: bool,
    /// It has made no call: it was interrupted where it is.
    is_interrupted: bool,
}

/// Unwinds `copy`.
pub(super) fn unwind(code: &mut dyn Code, copy: &StackCopy<'_>) -> Unwound {
    let memory = Memory(copy);
    let mut frame = innermost(code, copy);
    let mut unwound = Unwound::default();
    unwound.stack.locations.push(frame.location);
    while unwound.stack.locations.len() < DEPTH {
        let rule = code.rule(frame.lookup).or_else(|| frame.trampoline(code));
        // A rule that cannot be applied says that the copy has ended; to guess on would be wrong.
        let step = match rule {
            Some(rule) => rule.apply(&frame.registers, &memory),
            None => without_rule(code, &frame, &memory),
        };
        let Some(step) = step else {
            return unwound;
        };
        let Step::Caller {
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
        // Signal handlers may have a stack of their own, above or below the thread's.
        if !is_interrupted && registers.sp() <= frame.registers.sp() {
            return unwound;
        }
        let lookup = return_address.wrapping_sub(u64::from(!is_interrupted));
        // An interrupted function has called nobody; its location is made to look as if it had,
        // so that whoever names it, one byte before, names it and not what stands before it.
        let address = lookup.wrapping_add(1);
        let Some(location) = code.place(address, lookup) else {
            return unwound;
        };
        frame = Frame {
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
fn innermost(code: &mut dyn Code, copy: &StackCopy<'_>) -> Frame {
    let unknown = Location {
        address: copy.ip,
        module: None,
        offset: 0,
    };
    Frame {
        registers: Registers::new(copy.ip, copy.sp, copy.bp),
        lookup: copy.ip,
        location: code.place(copy.ip, copy.ip).unwrap_or(unknown),
        is_innermost: true,
        is_interrupted: false,
    }
}

impl Frame {
    fn trampoline(&self, code: &mut dyn Code) -> Option<Arc<Rule>> {
        let has_called = !self.is_innermost && !self.is_interrupted;
        let is_in_no_file = self.location.module.is_none();
        (has_called && is_in_no_file).then(|| code.trampoline(self.location.address))?
    }
}

/// The caller where no table says how to find it.
fn without_rule(code: &mut dyn Code, frame: &Frame, memory: &Memory<'_>) -> Option<Step> {
    let sp = frame.registers.sp();
    let mut caller = |slot: u64, bp: Option<u64>| {
        let return_address = memory.return_address(slot)?;
        if return_address != 0 {
            code.place(return_address, return_address.wrapping_sub(1))?;
        }
        let sp = slot.checked_add(8)?;
        Some(Step::Caller {
            registers: frame.registers.called_from(return_address, sp, bp),
            return_address,
            slot,
            is_interrupted: false,
        })
    };
    let bp = frame.registers.bp();
    // Stacks are taken where functions begin: nothing has been pushed yet.
    if frame.is_innermost
        && let Some(step) = caller(sp, bp)
        && !matches!(
            step,
            Step::Caller {
                return_address: 0,
                ..
            }
        )
    {
        return Some(step);
    }
    let bp = bp?;
    if bp == 0 && frame.location.module.is_some() {
        // So the ABI marks the outermost frame.
        return Some(Step::Outermost);
    }
    let is_above = bp >= sp && bp % 8 == 0;
    is_above.then_some(())?;
    caller(bp.checked_add(8)?, memory.word(bp))
}

/// Applies a file's rules for some addresses to a small stack, for tests with files that are not to
/// be trusted. Gives how many rules there were.
#[doc(hidden)]
pub fn try_tables(file: &[u8]) -> usize {
    let Ok(file) = gpuprobe_os::bounded::file_of(file) else {
        return 0;
    };
    let file = crate::reader::ElfFile::of(file);
    let Ok(headers) = file.headers() else {
        return 0;
    };
    let addresses = headers
        .segments
        .code()
        .flat_map(|s| (0..128).map(|n| s.address.wrapping_add(n * (s.file_size / 128).max(1))));
    let rules = addresses.filter_map(|address| {
        file.function(address);
        file.rules(address)
    });
    let rows = rules.flat_map(|function| function.rows);
    rows.inspect(|row| try_rule(&row.rule)).count()
}

/// Applies a rule to a small stack, for tests with rules that are not to be trusted.
pub(crate) fn try_rule(rule: &Rule) {
    let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let copy = StackCopy {
        ip: 0x1000,
        sp: 0x7f00_0000_0000,
        bp: 0x7f00_0000_0100,
        bytes: &bytes,
        replaced: &[],
    };
    let registers = Registers::new(copy.ip, copy.sp, copy.bp);
    let _ = rule.apply(&registers, &Memory(&copy));
}
