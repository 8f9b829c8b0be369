//! Trampolines: JIT-compiled code without unwind tables.
//!
//! With `-X perf`, `CPython` calls each Python function through a copy of a few instructions, so that each
//! has an address of its own (`Python/asm_trampoline.S`). The instructions after the call determine the
//! caller's frame, for any code with the same instructions.

use super::rule::UnwindRule;
use crate::instruction::ENDBR64;

/// Number of bytes read behind a call.
pub(crate) const AFTER_CALL: usize = 5;
/// Number of bytes read at the beginning of a trampoline.
pub(crate) const WHOLE: usize = 16;

/// Instructions of a trampoline around its call.
struct TrampolinePattern {
    before: &'static [u8],
    after: &'static [u8],
    saves_bp: bool,
}

/// `call *%rcx`
const CALL: &[u8] = &[0xff, 0xd1];

/// Both forms have 16 bytes on the stack at the call: the return address, and 8 bytes for alignment.
const FRAME_BYTES: i64 = 16;

const FORMS: &[TrampolinePattern] = &[
    TrampolinePattern {
        // sub $8,%rsp
        before: &[0x48, 0x83, 0xec, 0x08],
        // add $8,%rsp; ret
        after: &[0x48, 0x83, 0xc4, 0x08, 0xc3],
        saves_bp: false,
    },
    TrampolinePattern {
        // push %rbp; mov %rsp,%rbp
        before: &[0x55, 0x48, 0x89, 0xe5],
        // pop %rbp; ret
        after: &[0x5d, 0xc3],
        saves_bp: true,
    },
];

impl TrampolinePattern {
    fn rule(&self) -> UnwindRule {
        UnwindRule::of_fixed_frame(FRAME_BYTES, self.saves_bp)
    }
}

/// The unwind rule of a return address followed by `code`.
pub(crate) fn after_call(code: &[u8]) -> Option<UnwindRule> {
    let form = FORMS.iter().find(|form| code.starts_with(form.after))?;
    cfg!(target_arch = "x86_64").then(|| form.rule())
}

/// The unwind rule of return addresses in code that begins with `code`, if that is a trampoline: all
/// those in a mapping are alike.
pub(crate) fn beginning_of(code: &[u8]) -> Option<UnwindRule> {
    let code = code.strip_prefix(&ENDBR64).unwrap_or(code);
    let after = |form: &TrampolinePattern| code.strip_prefix(form.before)?.strip_prefix(CALL);
    let mut found = FORMS.iter().filter_map(after);
    after_call(found.next()?)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    const OLD: [u8; 11] = *b"\x48\x83\xec\x08\xff\xd1\x48\x83\xc4\x08\xc3";
    const NEW: [u8; 8] = *b"\x55\x48\x89\xe5\xff\xd1\x5d\xc3";

    #[test]
    fn trampolines_are_recognised_by_the_code_after_the_call() {
        let old = Some(UnwindRule::of_fixed_frame(16, false));
        let new = Some(UnwindRule::of_fixed_frame(16, true));
        assert_eq!(after_call(&OLD[6..]), old);
        assert_eq!(after_call(b"\x5d\xc3\0\0\0"), new);
        for other in [
            &b"\x48\x83\xc4\x18\xc3"[..],
            b"\x48\x83\xc4\x08",
            b"\x5d",
            b"\xc3",
            b"",
        ] {
            assert_eq!(after_call(other), None, "{other:x?}");
        }
        assert_eq!(beginning_of(&OLD), old);
        assert_eq!(beginning_of(&[&ENDBR64[..], &NEW, &NEW[..4]].concat()), new);
        for other in [&OLD[1..], &OLD[..10], &ENDBR64, b"", &[0x90; 16]] {
            assert_eq!(beginning_of(other), None, "{other:x?}");
        }
    }
}
