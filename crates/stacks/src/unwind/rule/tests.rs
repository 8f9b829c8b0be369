use super::super::StackCopy;
use super::*;

const STACK: u64 = 0x1000;
const RBX: u16 = 3;

/// The rule with the CFA 16 bytes above the stack pointer and these registers.
fn rule(cfa: Cfa, registers: &[(u16, ValueLocation)]) -> UnwindRule {
    UnwindRule {
        cfa,
        registers: registers.into(),
        ..UnwindRule::of_fixed_frame(16, false)
    }
}

/// The caller's register `wanted`, the return address and its slot after `rule`, on a stack of words 0x100,
/// 0x101, ...; the outermost frame has none.
fn applied(rule: &UnwindRule, wanted: u16) -> Option<Option<(Option<u64>, u64, u64)>> {
    let words: Vec<u8> = (0x100..0x110u64).flat_map(u64::to_le_bytes).collect();
    let copy = StackCopy {
        ip: 1,
        sp: STACK,
        bp: 0x55,
        bytes: &words,
        replaced: &[(STACK + 24, 0x77)],
    };
    let mut registers = Registers::new(copy.ip, copy.sp, copy.bp);
    registers.0[usize::from(RBX)] = Some(STACK + 32);
    Some(match rule.apply(&registers, &CopiedStack(&copy))? {
        RuleTarget::Outermost => None,
        RuleTarget::Caller {
            registers,
            return_address,
            slot,
            is_interrupted,
        } => {
            assert_eq!(is_interrupted, rule.is_signal_frame);
            assert_eq!(registers.get(16), Some(return_address));
            Some((registers.get(wanted), return_address, slot))
        }
    })
}

fn at_sp(offset: i64) -> Cfa {
    Cfa::Register(X86_64::RSP.0, offset)
}

const RETURN: (u16, ValueLocation) = (16, ValueLocation::At(-8));

#[test]
fn a_value_is_where_its_rule_says() {
    use ValueLocation::{At, AtExpression, Constant, Is, IsExpression, Register, Undefined};
    // The register RBX, and that minus 8; the memory there; the CFA plus 8.
    let rbx: Box<[u8]> = [0x73, 0].into();
    let below: Box<[u8]> = [0x73, 0x78].into();
    let memory: Box<[u8]> = [0x73, 0, 0x06].into();
    let above: Box<[u8]> = [0x23, 8].into();
    for (place, value) in [
        (Undefined, None),
        (At(0), Some(0x102)),
        (At(-16), Some(0x100)),
        // Popped already: as it was.
        (At(-24), Some(STACK + 32)),
        (At(1 << 20), None),
        (Is(24), Some(STACK + 40)),
        (Is(-24), Some(STACK - 8)),
        (Register(6), Some(0x55)),
        (Register(99), None),
        (AtExpression(rbx.clone()), Some(0x104)),
        (AtExpression(below), Some(0x103)),
        (IsExpression(rbx), Some(STACK + 32)),
        (IsExpression(memory), Some(0x104)),
        (IsExpression(above), Some(STACK + 24)),
        // A register that is not known, no result, a value in no memory, an endless loop.
        (IsExpression([0x74, 0].into()), None),
        (IsExpression([0xff].into()), None),
        (IsExpression([0x73, 0, 0x9f].into()), None),
        (IsExpression([0x2f, 0xfd, 0xff].into()), None),
        (Constant(9), Some(9)),
    ] {
        let rule = rule(at_sp(16), &[(RBX, place.clone()), RETURN]);
        let expected = Some(Some((value, 0x101, STACK + 8)));
        assert_eq!(applied(&rule, RBX), expected, "{place:?}");
    }
}

#[test]
fn the_return_address_is_in_memory_or_a_register() {
    use ValueLocation::{At, AtExpression, Is, Register, Undefined};
    let rbx: Box<[u8]> = [0x73, 0].into();
    for (place, expected) in [
        (At(-8), Some(Some((0x101, STACK + 8)))),
        (At(0), Some(Some((0x102, STACK + 16)))),
        (At(8), Some(Some((0x77, STACK + 24)))),
        (At(1 << 20), None),
        (AtExpression(rbx), Some(Some((0x104, STACK + 32)))),
        (Register(6), Some(Some((0x55, 0)))),
        (Is(4), Some(Some((STACK + 20, 0)))),
        (Register(5), None),
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
    let one = rule(Cfa::Expression(memory), &[RETURN]);
    assert_eq!(
        applied(&one, 7),
        Some(Some((Some(STACK + 24), 0x102, STACK + 16)))
    );
    let unknown = rule(Cfa::Register(5, 0), &[RETURN]);
    assert_eq!(applied(&unknown, 7), None);
    let saved = UnwindRule::of_fixed_frame(24, true);
    let expected = (Some(0x101), 0x102, STACK + 16);
    assert_eq!(applied(&saved, 6), Some(Some(expected)));
    let kept = UnwindRule::of_fixed_frame(24, false);
    assert_eq!(
        applied(&kept, 6),
        Some(Some((Some(0x55), 0x102, STACK + 16)))
    );
}

#[test]
fn encodings_are_the_same_after_sending() {
    for format in [Format::Dwarf32, Format::Dwarf64] {
        let encoding = Encoding {
            address_size: 8,
            format,
            version: 4,
        };
        let sent = ExpressionEncoding::from(encoding);
        assert_eq!(sent.is_64_bit, format == Format::Dwarf64);
        assert_eq!(Encoding::from(sent), encoding);
    }
}
