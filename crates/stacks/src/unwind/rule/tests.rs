use super::*;

use Operand::{Expression, Register};
use ValueLocation::{At, Is, Undefined};

const STACK: u64 = 0x1000;
const RBX: usize = 3;

/// The rule with the CFA 16 bytes above the stack pointer and these registers.
fn rule(cfa: Operand, registers: &[(usize, ValueLocation)]) -> UnwindRule {
    UnwindRule {
        cfa,
        registers: registers.into(),
        ..UnwindRule::of_fixed_frame(16)
    }
}

/// The caller's register `wanted`, the return address and its slot after `rule`, on a stack of words 0x100,
/// 0x101, ...; the outermost frame has none.
fn applied(rule: &UnwindRule, wanted: usize) -> Option<Option<(Option<u64>, u64, u64)>> {
    let words: Vec<u8> = (0x100..0x110u64).flat_map(u64::to_le_bytes).collect();
    let copy = StackCopy {
        ip: 1,
        sp: STACK,
        bp: 0x55,
        bytes: &words,
        replaced: &[(STACK + 24, 0x77)],
    };
    let mut frame = StackFrame::innermost(&copy);
    frame.registers[RBX] = Some(STACK + 32);
    let caller = rule.apply(&frame, &copy)?;
    assert_eq!(caller.has_called, !rule.is_signal_frame);
    let address = caller.ip();
    Some((address != 0).then(|| (caller.registers[wanted], address, caller.slot)))
}

fn at_sp(offset: i64) -> Operand {
    Register(SP, offset)
}

fn at_cfa(offset: i64) -> Operand {
    Register(CFA, offset)
}

const RETURN: (usize, ValueLocation) = (IP, At(Register(CFA, -8)));

#[test]
fn a_value_is_where_its_rule_says() {
    // The register RBX, and that minus 8; the memory there; the CFA plus 8.
    let rbx: Box<[u8]> = [0x73, 0].into();
    let below: Box<[u8]> = [0x73, 0x78].into();
    let memory: Box<[u8]> = [0x73, 0, 0x06].into();
    let above: Box<[u8]> = [0x23, 8].into();
    for (place, value) in [
        (Undefined, None),
        (At(at_cfa(0)), Some(0x102)),
        (At(at_cfa(-16)), Some(0x100)),
        // Popped already: as it was.
        (At(at_cfa(-24)), Some(STACK + 32)),
        (At(at_cfa(1 << 20)), None),
        (Is(at_cfa(24)), Some(STACK + 40)),
        (Is(at_cfa(-24)), Some(STACK - 8)),
        (Is(Register(6, 0)), Some(0x55)),
        (Is(Register(99, 0)), None),
        (At(Expression(rbx.clone())), Some(0x104)),
        (At(Expression(below)), Some(0x103)),
        (Is(Expression(rbx)), Some(STACK + 32)),
        (Is(Expression(memory)), Some(0x104)),
        (Is(Expression(above)), Some(STACK + 24)),
        // A register that is not known, no result, a value in no memory, an endless loop.
        (Is(Expression([0x74, 0].into())), None),
        (Is(Expression([0xff].into())), None),
        (Is(Expression([0x73, 0, 0x9f].into())), None),
        (Is(Expression([0x2f, 0xfd, 0xff].into())), None),
        (At(Register(5, 0)), None),
    ] {
        let rule = rule(at_sp(16), &[(RBX, place.clone()), RETURN]);
        let expected = Some(Some((value, 0x101, STACK + 8)));
        assert_eq!(applied(&rule, RBX), expected, "{place:?}");
    }
}

#[test]
fn the_return_address_is_in_memory_or_a_register() {
    let rbx: Box<[u8]> = [0x73, 0].into();
    for (place, expected) in [
        (At(at_cfa(-8)), Some(Some((0x101, STACK + 8)))),
        (At(at_cfa(0)), Some(Some((0x102, STACK + 16)))),
        (At(at_cfa(8)), Some(Some((0x77, STACK + 24)))),
        (At(at_cfa(1 << 20)), None),
        (At(Expression(rbx)), Some(Some((0x104, STACK + 32)))),
        (Is(Register(6, 0)), Some(Some((0x55, 0)))),
        (Is(at_cfa(4)), Some(Some((STACK + 20, 0)))),
        (Is(Register(5, 0)), None),
        (Undefined, Some(None)),
    ] {
        let rule = rule(at_sp(16), &[(16, place.clone())]);
        let found = applied(&rule, 7).map(|found| {
            let of_caller = |(sp, address, slot)| {
                assert_eq!(sp, Some(STACK + 16));
                (address, slot)
            };
            found.map(of_caller)
        });
        assert_eq!(found, expected, "{place:?}");
    }
    assert_eq!(applied(&rule(at_sp(16), &[]), 7), Some(None));
}

#[test]
fn the_frame_may_be_at_an_expression() {
    let memory: Box<[u8]> = [0x77, 24].into();
    let one = rule(Expression(memory), &[RETURN]);
    assert_eq!(
        applied(&one, 7),
        Some(Some((Some(STACK + 24), 0x102, STACK + 16)))
    );
    let unknown = rule(Register(5, 0), &[RETURN]);
    assert_eq!(applied(&unknown, 7), None);
    let kept = UnwindRule::of_fixed_frame(24);
    assert_eq!(
        applied(&kept, 6),
        Some(Some((Some(0x55), 0x102, STACK + 16)))
    );
}
