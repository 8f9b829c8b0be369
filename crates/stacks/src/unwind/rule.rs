//! Unwind rules: the caller's registers at an address.
//!
//! framehop supports common rules only: it evaluates no expression that reads memory, so it fails in
//! functions that align their stack (all with AVX-512 or `alignas`) and in signal trampolines, and it
//! tracks no register but the stack and frame pointers. So all of gimli's rows are evaluated here.

use gimli::{CfaRule, EhFrame, Encoding, Evaluation, EvaluationResult, Expression, LittleEndian};
use gimli::{EndianSlice, RegisterRule, UnwindExpression, UnwindTableRow, Value};
use gimli::{Format, FrameDescriptionEntry, Location, X86_64};
use serde::{Deserialize, Serialize};

use super::memory::CopiedStack;
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

/// Where a register's value is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ValueLocation {
    Undefined,
    /// In memory, at this offset from the CFA.
    At(i64),
    /// The CFA plus this.
    Is(i64),
    /// In another register, by DWARF number.
    Register(u16),
    /// In memory, at the address that the expression gives.
    AtExpression(Box<[u8]>),
    /// The result of the expression.
    IsExpression(Box<[u8]>),
    Constant(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Cfa {
    /// A register plus an offset.
    Register(u16, i64),
    Expression(Box<[u8]>),
}

/// A row of the unwind table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwindRule {
    cfa: Cfa,
    /// Registers that are not listed are unchanged.
    registers: Box<[(u16, ValueLocation)]>,
    encoding: ExpressionEncoding,
    is_signal_frame: bool,
}

/// Encoding of expressions: gimli's [`Encoding`] of a 64-bit program, serialisable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ExpressionEncoding {
    is_64_bit: bool,
    version: u16,
}

impl From<Encoding> for ExpressionEncoding {
    fn from(encoding: Encoding) -> Self {
        Self {
            is_64_bit: encoding.format == Format::Dwarf64,
            version: encoding.version,
        }
    }
}

impl From<ExpressionEncoding> for Encoding {
    fn from(form: ExpressionEncoding) -> Self {
        Self {
            address_size: 8,
            format: if form.is_64_bit {
                Format::Dwarf64
            } else {
                Format::Dwarf32
            },
            version: form.version,
        }
    }
}

/// Result of a rule. It lives for one step and is never stored.
#[allow(clippy::large_enum_variant)]
pub(super) enum RuleTarget {
    /// There is no caller.
    Outermost,
    Caller {
        registers: Registers,
        return_address: u64,
        /// Stack address of the return address; 0 if it was in a register.
        slot: u64,
        /// The caller was interrupted by a signal: it has made no call.
        is_interrupted: bool,
    },
}

impl UnwindRule {
    pub(super) fn new(
        section: &EhFrame<Bytes<'_>>,
        entry: &FrameDescriptionEntry<Bytes<'_>>,
        row: &UnwindTableRow<usize>,
    ) -> Option<Self> {
        let bytes = |expression: &UnwindExpression<usize>| {
            let Expression(bytes) = expression.get(section).ok()?;
            Some(bytes.slice().into())
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
            CfaRule::Expression(expression) => Cfa::Expression(bytes(expression)?),
        };
        let mut registers = Vec::new();
        for (register, rule) in row.registers() {
            let place = match rule {
                RegisterRule::SameValue => continue,
                RegisterRule::Offset(offset) => ValueLocation::At(*offset),
                RegisterRule::ValOffset(offset) => ValueLocation::Is(*offset),
                RegisterRule::Register(other) => ValueLocation::Register(other.0),
                RegisterRule::Expression(e) => ValueLocation::AtExpression(bytes(e)?),
                RegisterRule::ValExpression(e) => ValueLocation::IsExpression(bytes(e)?),
                RegisterRule::Constant(value) => ValueLocation::Constant(*value),
                _ => ValueLocation::Undefined,
            };
            if usize::from(register.0) < REGISTERS {
                registers.push((register.0, place));
            }
        }
        Some(Self {
            cfa,
            registers: registers.into(),
            encoding: entry.cie().encoding().into(),
            is_signal_frame: entry.is_signal_trampoline(),
        })
    }

    /// The rule of a frame of `bytes` bytes above the stack pointer, with the return address at its end
    /// and, with `saves_bp`, the caller's frame pointer before it.
    pub(super) fn of_fixed_frame(bytes: i64, saves_bp: bool) -> Self {
        const WORD: i64 = 8;
        let return_address = (X86_64::RA.0, ValueLocation::At(-WORD));
        let saved = saves_bp.then_some((X86_64::RBP.0, ValueLocation::At(-2 * WORD)));
        Self {
            cfa: Cfa::Register(X86_64::RSP.0, bytes),
            registers: saved.into_iter().chain([return_address]).collect(),
            // Unused: the rule has no expression.
            encoding: ExpressionEncoding {
                is_64_bit: false,
                version: 1,
            },
            is_signal_frame: false,
        }
    }

    /// The caller's registers; `None` if they cannot be read.
    pub(super) fn apply(
        &self,
        registers: &Registers,
        memory: &CopiedStack<'_>,
    ) -> Option<RuleTarget> {
        let own = self.registers.iter().find(|(number, _)| *number == 16);
        let Some((_, of_return)) = own else {
            return Some(RuleTarget::Outermost);
        };
        if *of_return == ValueLocation::Undefined {
            return Some(RuleTarget::Outermost);
        }
        let cfa = match &self.cfa {
            Cfa::Register(register, offset) => {
                registers.get(*register)?.wrapping_add_signed(*offset)
            }
            Cfa::Expression(bytes) => self.evaluate(bytes, None, registers, memory)?,
        };
        let mut caller = *registers;
        caller.0[SP] = Some(cfa);
        for (number, place) in &self.registers {
            let mut value = self.value(place, cfa, registers, memory);
            // Below the stack pointer: already popped by an epilogue.
            if let ValueLocation::At(offset) = place
                && cfa.wrapping_add_signed(*offset) < memory.0.sp
            {
                value = registers.get(*number);
            }
            if let Some(register) = caller.0.get_mut(usize::from(*number)) {
                *register = value;
            }
        }
        let slot = match of_return {
            ValueLocation::At(offset) => Some(cfa.wrapping_add_signed(*offset)),
            ValueLocation::AtExpression(bytes) => {
                self.evaluate(bytes, Some(cfa), registers, memory)
            }
            _ => None,
        };
        let return_address = match slot {
            Some(slot) => memory.return_address(slot)?,
            None => caller.0[IP]?,
        };
        caller.0[IP] = Some(return_address);
        Some(RuleTarget::Caller {
            registers: caller,
            return_address,
            slot: slot.unwrap_or(0),
            is_interrupted: self.is_signal_frame,
        })
    }

    fn value(
        &self,
        place: &ValueLocation,
        cfa: u64,
        from: &Registers,
        memory: &CopiedStack<'_>,
    ) -> Option<u64> {
        let evaluate = |bytes| self.evaluate(bytes, Some(cfa), from, memory);
        match place {
            ValueLocation::Undefined => None,
            ValueLocation::At(offset) => memory.word(cfa.wrapping_add_signed(*offset)),
            ValueLocation::Is(offset) => Some(cfa.wrapping_add_signed(*offset)),
            ValueLocation::Register(register) => from.get(*register),
            ValueLocation::AtExpression(bytes) => memory.word(evaluate(bytes)?),
            ValueLocation::IsExpression(bytes) => evaluate(bytes),
            ValueLocation::Constant(value) => Some(*value),
        }
    }

    fn evaluate(
        &self,
        bytes: &[u8],
        initial: Option<u64>,
        registers: &Registers,
        memory: &CopiedStack<'_>,
    ) -> Option<u64> {
        let bytes: Bytes<'_> = EndianSlice::new(bytes, LittleEndian);
        let mut evaluation = Evaluation::new(bytes, self.encoding.into());
        evaluation.set_max_iterations(STEPS);
        if let Some(value) = initial {
            evaluation.set_initial_value(value);
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
                    let value = Value::Generic(memory.bytes(address, size)?);
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
}

const _: () = assert!(X86_64::RSP.0 as usize == SP && X86_64::RBP.0 as usize == BP);
const _: () = assert!(X86_64::RA.0 as usize == IP);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
