//! How the caller's registers are found at one place in the code.
//!
//! framehop translates the common rules only: it evaluates no expression that reads memory, so it
//! gets lost in functions that align their stack (all that use AVX-512 or `alignas`) and in signal
//! trampolines, and it follows no register but the stack and frame pointers. So gimli's rows are
//! evaluated here, all of them.

use gimli::{CfaRule, EhFrame, Encoding, Evaluation, EvaluationResult, Expression, LittleEndian};
use gimli::{EndianSlice, RegisterRule, UnwindExpression, UnwindTableRow, Value};
use gimli::{Format, FrameDescriptionEntry, Location, X86_64};
use serde::{Deserialize, Serialize};

use super::memory::Memory;
use super::table::Bytes;

/// Steps of an expression; real ones have a dozen.
const STEPS: u32 = 256;
/// The general registers and the instruction pointer, by DWARF's numbers.
const REGISTERS: usize = 17;
const SP: usize = 7;
const BP: usize = 6;
const IP: usize = 16;

/// The registers in a frame, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers([Option<u64>; REGISTERS]);

impl Registers {
    pub(super) fn new(ip: u64, sp: u64, bp: u64) -> Self {
        let mut all = [None; REGISTERS];
        (all[IP], all[SP], all[BP]) = (Some(ip), Some(sp), Some(bp));
        Self(all)
    }

    /// The caller's registers, after a step that is known to have kept the others.
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

/// Where a value is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Place {
    Undefined,
    /// In memory, so far from the CFA.
    At(i64),
    /// It is the CFA plus this.
    Is(i64),
    /// In a register, by its number.
    Register(u16),
    /// In memory, where the expression says.
    AtExpression(Box<[u8]>),
    /// It is the expression's result.
    IsExpression(Box<[u8]>),
    Constant(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Cfa {
    /// So far from a register.
    Register(u16, i64),
    Expression(Box<[u8]>),
}

/// How to unwind from one place in the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    cfa: Cfa,
    /// Of registers that are not listed, the caller's value is the callee's.
    registers: Box<[(u16, Place)]>,
    encoding: Form,
    is_signal_frame: bool,
}

/// How expressions are written: gimli's [`Encoding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Form {
    address_size: u8,
    is_64_bit: bool,
    version: u16,
}

impl From<Encoding> for Form {
    fn from(encoding: Encoding) -> Self {
        Self {
            address_size: encoding.address_size,
            is_64_bit: encoding.format == Format::Dwarf64,
            version: encoding.version,
        }
    }
}

impl From<Form> for Encoding {
    fn from(form: Form) -> Self {
        Self {
            address_size: form.address_size,
            format: if form.is_64_bit {
                Format::Dwarf64
            } else {
                Format::Dwarf32
            },
            version: form.version,
        }
    }
}

/// Where a rule leads. It lives for one step and is never stored.
#[allow(clippy::large_enum_variant)]
pub(super) enum Step {
    /// There is no caller.
    Outermost,
    Caller {
        registers: Registers,
        return_address: u64,
        /// Where that was read.
        slot: u64,
        /// The caller was interrupted: it has made no call.
        is_interrupted: bool,
    },
}

impl Rule {
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
                RegisterRule::Offset(offset) => Place::At(*offset),
                RegisterRule::ValOffset(offset) => Place::Is(*offset),
                RegisterRule::Register(other) => Place::Register(other.0),
                RegisterRule::Expression(e) => Place::AtExpression(bytes(e)?),
                RegisterRule::ValExpression(e) => Place::IsExpression(bytes(e)?),
                RegisterRule::Constant(value) => Place::Constant(*value),
                _ => Place::Undefined,
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

    /// Of a frame of `bytes` above the stack pointer, which end with the return address and, if
    /// `saves_bp`, the caller's frame pointer before it.
    pub(super) fn of_fixed_frame(bytes: i64, saves_bp: bool) -> Self {
        const WORD: i64 = 8;
        let return_address = (X86_64::RA.0, Place::At(-WORD));
        let saved = saves_bp.then_some((X86_64::RBP.0, Place::At(-2 * WORD)));
        Self {
            cfa: Cfa::Register(X86_64::RSP.0, bytes),
            registers: saved.into_iter().chain([return_address]).collect(),
            // There is no expression to be read with it.
            encoding: Form {
                address_size: 8,
                is_64_bit: false,
                version: 1,
            },
            is_signal_frame: false,
        }
    }

    /// The caller's registers; none if they cannot be found.
    pub(super) fn apply(&self, registers: &Registers, memory: &Memory<'_>) -> Option<Step> {
        let own = self.registers.iter().find(|(number, _)| *number == 16);
        let Some((_, of_return)) = own else {
            return Some(Step::Outermost);
        };
        if *of_return == Place::Undefined {
            return Some(Step::Outermost);
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
            // Below the stack pointer, what an epilogue has popped already.
            if let Place::At(offset) = place
                && cfa.wrapping_add_signed(*offset) < memory.0.sp
            {
                value = registers.get(*number);
            }
            if let Some(register) = caller.0.get_mut(usize::from(*number)) {
                *register = value;
            }
        }
        let slot = match of_return {
            Place::At(offset) => Some(cfa.wrapping_add_signed(*offset)),
            Place::AtExpression(bytes) => self.evaluate(bytes, Some(cfa), registers, memory),
            _ => None,
        };
        let return_address = match slot {
            Some(slot) => memory.return_address(slot)?,
            None => caller.0[IP]?,
        };
        caller.0[IP] = Some(return_address);
        Some(Step::Caller {
            registers: caller,
            return_address,
            slot: slot.unwrap_or(0),
            is_interrupted: self.is_signal_frame,
        })
    }

    fn value(&self, place: &Place, cfa: u64, from: &Registers, memory: &Memory<'_>) -> Option<u64> {
        let evaluate = |bytes| self.evaluate(bytes, Some(cfa), from, memory);
        match place {
            Place::Undefined => None,
            Place::At(offset) => memory.word(cfa.wrapping_add_signed(*offset)),
            Place::Is(offset) => Some(cfa.wrapping_add_signed(*offset)),
            Place::Register(register) => from.get(*register),
            Place::AtExpression(bytes) => memory.word(evaluate(bytes)?),
            Place::IsExpression(bytes) => evaluate(bytes),
            Place::Constant(value) => Some(*value),
        }
    }

    fn evaluate(
        &self,
        bytes: &[u8],
        initial: Option<u64>,
        registers: &Registers,
        memory: &Memory<'_>,
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
