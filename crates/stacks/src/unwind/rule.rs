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
/// Number of registers: the general ones and the instruction pointer, by DWARF number.
const REGISTERS: usize = 17;
const SP: usize = 7;
const BP: usize = 6;
const IP: usize = 16;

/// Known register values of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers([Option<u64>; REGISTERS]);

impl Registers {
    pub(super) fn new(ip: u64, sp: u64, bp: u64) -> Self {
        let mut all = [None; REGISTERS];
        (all[IP], all[SP], all[BP]) = (Some(ip), Some(sp), Some(bp));
        Self(all)
    }

    /// The caller's registers, if the others are unchanged.
    pub(super) fn called_from(mut self, ip: u64, sp: u64, bp: Option<u64>) -> Self {
        (self.0[IP], self.0[SP], self.0[BP]) = (Some(ip), Some(sp), bp);
        self
    }

    /// Those of a caller that there is not: the frame is outermost.
    pub(super) fn of_none(self) -> Self {
        self.called_from(0, 0, None)
    }

    pub(super) fn ip(&self) -> u64 {
        self.0[IP].unwrap_or(0)
    }

    pub(super) fn sp(&self) -> u64 {
        self.0[SP].unwrap_or(0)
    }

    pub(super) fn bp(&self) -> Option<u64> {
        self.0[BP]
    }

    fn get(&self, register: u16) -> Option<u64> {
        self.0.get(usize::from(register)).copied().flatten()
    }
}

/// A number that follows from a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Operand {
    /// A register, by DWARF number, plus an offset.
    Register(u16, i64),
    /// The CFA plus an offset.
    Cfa(i64),
    Expression(Box<[u8]>),
    Constant(u64),
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
    registers: Box<[(u16, ValueLocation)]>,
    is_signal_frame: bool,
}

/// Encoding of expressions; nothing that can be evaluated here depends on more than the size of addresses.
const ENCODING: Encoding = Encoding {
    address_size: 8,
    format: Format::Dwarf32,
    version: 4,
};

/// The frame that another was called from.
pub(super) struct Caller {
    /// Without a return address in them, there is none.
    pub(super) registers: Registers,
    /// Stack address of the return address; 0 if it was in a register.
    pub(super) slot: u64,
    /// It was interrupted by a signal: it has made no call.
    pub(super) is_interrupted: bool,
}

impl Operand {
    fn expression(
        section: &EhFrame<Bytes<'_>>,
        expression: &UnwindExpression<usize>,
    ) -> Option<Self> {
        let Expression(bytes) = expression.get(section).ok()?;
        Some(Self::Expression(bytes.slice().into()))
    }

    fn value(&self, cfa: Option<u64>, from: &Registers, stack: &StackCopy<'_>) -> Option<u64> {
        match self {
            Self::Register(register, offset) => {
                Some(from.get(*register)?.wrapping_add_signed(*offset))
            }
            Self::Cfa(offset) => Some(cfa?.wrapping_add_signed(*offset)),
            Self::Expression(bytes) => evaluate(bytes, cfa, from, stack),
            Self::Constant(value) => Some(*value),
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
        let expression = |expression| Operand::expression(section, expression);
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Operand::Register(register.0, *offset)
            }
            CfaRule::Expression(bytes) => expression(bytes)?,
        };
        let mut registers = Vec::new();
        for (register, rule) in row.registers() {
            let place = match rule {
                RegisterRule::SameValue => continue,
                RegisterRule::Offset(offset) => At(Operand::Cfa(*offset)),
                RegisterRule::ValOffset(offset) => Is(Operand::Cfa(*offset)),
                RegisterRule::Register(other) => Is(Operand::Register(other.0, 0)),
                RegisterRule::Expression(bytes) => At(expression(bytes)?),
                RegisterRule::ValExpression(bytes) => Is(expression(bytes)?),
                RegisterRule::Constant(value) => Is(Operand::Constant(*value)),
                _ => Undefined,
            };
            if usize::from(register.0) < REGISTERS {
                registers.push((register.0, place));
            }
        }
        Some(Self {
            cfa,
            registers: registers.into(),
            is_signal_frame: entry.is_signal_trampoline(),
        })
    }

    /// The rule of a frame of `bytes` bytes above the stack pointer, with the return address at its end
    /// and, with `saves_bp`, the caller's frame pointer before it.
    pub(super) fn of_fixed_frame(bytes: i64, saves_bp: bool) -> Self {
        const WORD: i64 = 8;
        let saved_at = |offset| ValueLocation::At(Operand::Cfa(offset));
        let bp = saves_bp.then(|| (X86_64::RBP.0, saved_at(-2 * WORD)));
        let registers = bp.into_iter().chain([(X86_64::RA.0, saved_at(-WORD))]);
        Self {
            cfa: Operand::Register(X86_64::RSP.0, bytes),
            registers: registers.collect(),
            is_signal_frame: false,
        }
    }

    /// The caller; `None` if its registers cannot be read.
    pub(super) fn apply(&self, from: &Registers, stack: &StackCopy<'_>) -> Option<Caller> {
        use ValueLocation::{At, Is, Undefined};
        let own = self.registers.iter();
        let mut own = own.filter(|(number, _)| usize::from(*number) == IP);
        let of_return = own.next().map_or(&Undefined, |(_, place)| place);
        let is_interrupted = self.is_signal_frame;
        if *of_return == Undefined {
            return Some(Caller {
                registers: from.of_none(),
                slot: 0,
                is_interrupted,
            });
        }
        let cfa = self.cfa.value(None, from, stack)?;
        let value = |operand: &Operand| operand.value(Some(cfa), from, stack);
        let mut registers = *from;
        registers.0[SP] = Some(cfa);
        for (number, place) in &self.registers {
            let found = match place {
                Undefined => None,
                Is(operand) => value(operand),
                // Below the stack pointer: already popped by an epilogue.
                At(Operand::Cfa(offset)) if cfa.wrapping_add_signed(*offset) < stack.sp => {
                    from.get(*number)
                }
                At(operand) => value(operand).and_then(|address| stack.word(address)),
            };
            if let Some(register) = registers.0.get_mut(usize::from(*number)) {
                *register = found;
            }
        }
        let slot = match of_return {
            At(operand) => value(operand),
            _ => None,
        };
        registers.0[IP] = match slot {
            Some(slot) => Some(stack.return_address(slot)?),
            None => Some(registers.0[IP]?),
        };
        Some(Caller {
            registers,
            slot: slot.unwrap_or(0),
            is_interrupted,
        })
    }
}

/// The result of an expression, which begins with the CFA, if there is one.
fn evaluate(
    bytes: &[u8],
    cfa: Option<u64>,
    registers: &Registers,
    stack: &StackCopy<'_>,
) -> Option<u64> {
    let bytes: Bytes<'_> = EndianSlice::new(bytes, LittleEndian);
    let mut evaluation = Evaluation::new(bytes, ENCODING);
    evaluation.set_max_iterations(STEPS);
    if let Some(cfa) = cfa {
        evaluation.set_initial_value(cfa);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = Value::Generic(registers.get(register.0)?);
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
