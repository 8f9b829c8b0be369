//! Unwind rules: the caller's registers at an address.
//!
//! framehop supports common rules only: it evaluates no expression that reads memory, so it fails in
//! functions that align their stack (all with AVX-512 or `alignas`) and in signal trampolines, and it
//! tracks no register but the stack and frame pointers. So all of gimli's rows are evaluated here.

use gimli::{CfaRule, EhFrame, Encoding, Evaluation, EvaluationResult, Expression, LittleEndian};
use gimli::{EndianSlice, RegisterRule, UnwindExpression, UnwindTableRow, Value};
use gimli::{Format, FrameDescriptionEntry, Location, X86_64};
use serde::{Deserialize, Serialize};

use super::StackCopy;
use super::table::Bytes;

/// Maximum number of operations of an expression; real ones have a dozen.
const STEPS: u32 = 256;
pub(super) const BP: usize = 6;
pub(super) const SP: usize = 7;
pub(super) const IP: usize = 16;
/// The canonical frame address, which is known while a rule is applied.
const CFA: usize = 17;

/// Known values: the general registers and the instruction pointer by DWARF number, and the CFA.
type Registers = [Option<u64>; 18];

/// A frame of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackFrame {
    pub(super) registers: Registers,
    /// Stack address of the return address to it; 0 if it was in a register.
    pub(super) slot: u64,
    /// It has made a call: it is neither innermost nor interrupted by a signal.
    pub(super) has_called: bool,
}

impl StackFrame {
    pub(super) fn innermost(stack: &StackCopy<'_>) -> Self {
        let mut registers = [None; 18];
        let values = [stack.ip, stack.sp, stack.bp].map(Some);
        [registers[IP], registers[SP], registers[BP]] = values;
        Self {
            registers,
            slot: 0,
            has_called: false,
        }
    }

    /// The caller whose return address `ip` is at `slot`, if its other registers are the same.
    pub(super) fn caller(mut self, ip: u64, slot: u64, bp: Option<u64>) -> Self {
        let values = [Some(ip), slot.checked_add(8), bp];
        [self.registers[IP], self.registers[SP], self.registers[BP]] = values;
        Self {
            slot,
            has_called: true,
            ..self
        }
    }

    /// The instruction pointer; 0 for the caller of the outermost frame.
    pub(super) fn ip(&self) -> u64 {
        self.registers[IP].unwrap_or(0)
    }
}

/// A number that follows from a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Operand {
    /// A register or the CFA, by index, plus an offset.
    Register(usize, i64),
    Expression(Box<[u8]>),
}

/// Where a register's value is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ValueLocation {
    Undefined,
    /// In memory, at this address.
    At(Operand),
    /// The number itself.
    Is(Operand),
}

/// A row of the unwind table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwindRule {
    cfa: Operand,
    /// Registers that are not listed are unchanged.
    registers: Box<[(usize, ValueLocation)]>,
    is_signal_frame: bool,
}

/// Encoding of expressions; nothing that can be evaluated here depends on more than the size of addresses.
const ENCODING: Encoding = Encoding {
    address_size: 8,
    format: Format::Dwarf32,
    version: 4,
};

impl Operand {
    fn register(register: gimli::Register, offset: i64) -> Self {
        Self::Register(usize::from(register.0), offset)
    }

    fn value(&self, registers: &Registers, stack: &StackCopy<'_>) -> Option<u64> {
        match self {
            Self::Register(number, offset) => {
                let register = *registers.get(*number)?;
                Some(register?.wrapping_add_signed(*offset))
            }
            Self::Expression(bytes) => evaluate(bytes, registers, stack),
        }
    }
}

impl UnwindRule {
    pub(super) fn new(
        section: &EhFrame<Bytes<'_>>,
        entry: &FrameDescriptionEntry<Bytes<'_>>,
        row: &UnwindTableRow<usize>,
    ) -> Option<Self> {
        use ValueLocation::{At, Is, Undefined};
        let expression = |expression: &UnwindExpression<usize>| {
            let Expression(bytes) = expression.get(section).ok()?;
            Some(Operand::Expression(bytes.slice().into()))
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Operand::register(*register, *offset)
            }
            CfaRule::Expression(bytes) => expression(bytes)?,
        };
        let mut registers = Vec::new();
        for (register, rule) in row.registers() {
            let location = match rule {
                RegisterRule::SameValue => continue,
                RegisterRule::Offset(offset) => At(Operand::Register(CFA, *offset)),
                RegisterRule::ValOffset(offset) => Is(Operand::Register(CFA, *offset)),
                RegisterRule::Register(other) => Is(Operand::register(*other, 0)),
                RegisterRule::Expression(bytes) => At(expression(bytes)?),
                RegisterRule::ValExpression(bytes) => Is(expression(bytes)?),
                _ => Undefined,
            };
            let number = usize::from(register.0);
            if number <= IP {
                registers.push((number, location));
            }
        }
        Some(Self {
            cfa,
            registers: registers.into(),
            is_signal_frame: entry.is_signal_trampoline(),
        })
    }

    /// The rule of a frame of `bytes` bytes above the stack pointer, with the return address at its end.
    pub(super) fn of_fixed_frame(bytes: i64) -> Self {
        Self {
            cfa: Operand::Register(SP, bytes),
            registers: [(IP, ValueLocation::At(Operand::Register(CFA, -8)))].into(),
            is_signal_frame: false,
        }
    }

    /// The caller; `None` if its registers cannot be read.
    pub(super) fn apply(&self, frame: &StackFrame, stack: &StackCopy<'_>) -> Option<StackFrame> {
        use ValueLocation::{At, Is, Undefined};
        let mut caller = StackFrame {
            slot: 0,
            has_called: !self.is_signal_frame,
            ..*frame
        };
        caller.registers[IP] = None;
        let mut listed = self.registers.iter();
        if !listed.any(|(number, location)| *number == IP && *location != Undefined) {
            return Some(caller);
        }
        let mut own = frame.registers;
        own[CFA] = Some(self.cfa.value(&own, stack)?);
        caller.registers[SP] = own[CFA];
        for (number, location) in &self.registers {
            let register = caller.registers.get_mut(*number)?;
            *register = match location {
                Undefined => None,
                Is(operand) => operand.value(&own, stack),
                At(operand) => match operand.value(&own, stack) {
                    Some(slot) if *number == IP => {
                        caller.slot = slot;
                        stack.return_address(slot)
                    }
                    // Below the stack pointer: already popped by an epilogue.
                    Some(address) if address < stack.sp => *register,
                    address => address.and_then(|address| stack.word(address)),
                },
            };
        }
        caller.registers[IP].map(|_| caller)
    }
}

/// The result of an expression, which begins with the CFA, if there is one.
fn evaluate(bytes: &[u8], registers: &Registers, stack: &StackCopy<'_>) -> Option<u64> {
    let bytes: Bytes<'_> = EndianSlice::new(bytes, LittleEndian);
    let mut evaluation = Evaluation::new(bytes, ENCODING);
    evaluation.set_max_iterations(STEPS);
    if let Some(cfa) = registers[CFA] {
        evaluation.set_initial_value(cfa);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let register = *registers.get(usize::from(register.0))?;
                let value = Value::Generic(register?);
                evaluation.resume_with_register(value).ok()?
            }
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let value = Value::Generic(stack.number(address, size)?);
                evaluation.resume_with_memory(value).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result().last()?.location {
        Location::Address { address } => Some(address),
        _ => None,
    }
}

const _: () = assert!(X86_64::RSP.0 as usize == SP && X86_64::RBP.0 as usize == BP);
const _: () = assert!(X86_64::RA.0 as usize == IP);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
