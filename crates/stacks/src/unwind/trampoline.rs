//! Trampolines: JIT-compiled code with neither unwind tables nor frame pointers.
//!
//! With `-X perf`, `CPython` calls each Python function through a copy of a few instructions, so that each
//! has an address of its own (`Python/asm_trampoline.S`). A mapping that begins with one holds nothing else.

use super::rule::UnwindRule;
use crate::instruction::ENDBR64;

/// Number of bytes that tell whether code is a trampoline.
pub(crate) const WHOLE: usize = 16;

/// `sub $8,%rsp; call *%rcx; add $8,%rsp; ret`. Those of later versions have a frame pointer.
const CODE: &[u8] = b"\x48\x83\xec\x08\xff\xd1\x48\x83\xc4\x08\xc3";

/// The unwind rule of return addresses in a mapping that begins with `code`, if that is a trampoline: it has
/// nothing else.
pub(crate) fn rule(code: &[u8]) -> Option<UnwindRule> {
    let code = code.strip_prefix(&ENDBR64).unwrap_or(code);
    // At the call, the return address and 8 bytes for alignment are on the stack.
    code.starts_with(CODE)
        .then(|| UnwindRule::of_fixed_frame(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trampolines_are_recognised_by_their_code() {
        let expected = Some(UnwindRule::of_fixed_frame(16));
        assert_eq!(rule(CODE), expected);
        assert_eq!(rule(&[&ENDBR64, CODE, &CODE[..4]].concat()), expected);
        for other in [&CODE[1..], &CODE[..10], &ENDBR64, b"", &[0x90; 16]] {
            assert_eq!(rule(other), None, "{other:x?}");
        }
    }
}
