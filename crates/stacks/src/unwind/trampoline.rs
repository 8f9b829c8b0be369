//! Trampolines: JIT-compiled code without unwind tables.
//!
//! With `-X perf`, `CPython` calls each Python function through a copy of a few instructions, so that each
//! has an address of its own (`Python/asm_trampoline.S`). A mapping that begins with one holds nothing else.

use super::rule::UnwindRule;
use crate::instruction::ENDBR64;

/// Number of bytes that tell whether code is a trampoline.
pub(crate) const WHOLE: usize = 16;

/// Both forms have 16 bytes on the stack at the call: the return address, and 8 bytes for alignment.
const FRAME_BYTES: i64 = 16;

/// The instructions after `endbr64`, and whether they save the frame pointer.
const FORMS: [(&[u8], bool); 2] = [
    // sub $8,%rsp; call *%rcx; add $8,%rsp; ret
    (b"\x48\x83\xec\x08\xff\xd1\x48\x83\xc4\x08\xc3", false),
    // push %rbp; mov %rsp,%rbp; call *%rcx; pop %rbp; ret
    (b"\x55\x48\x89\xe5\xff\xd1\x5d\xc3", true),
];

/// The unwind rule of return addresses in a mapping that begins with `code`, if that is a trampoline: it has
/// nothing else.
pub(crate) fn rule(code: &[u8]) -> Option<UnwindRule> {
    let code = code.strip_prefix(&ENDBR64).unwrap_or(code);
    let is_x86_64 = cfg!(target_arch = "x86_64");
    let mut forms = FORMS.iter().filter(|_| is_x86_64);
    let (_, saves_bp) = forms.find(|(form, _)| code.starts_with(form))?;
    Some(UnwindRule::of_fixed_frame(FRAME_BYTES, *saves_bp))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn trampolines_are_recognised_by_their_code() {
        let [(old, _), (new, _)] = FORMS;
        let rule_of = |saves_bp| Some(UnwindRule::of_fixed_frame(16, saves_bp));
        assert_eq!(rule(old), rule_of(false));
        assert_eq!(
            rule(&[&ENDBR64[..], new, &new[..4]].concat()),
            rule_of(true)
        );
        for other in [&old[1..], &old[..10], &ENDBR64, b"", &[0x90; 16]] {
            assert_eq!(rule(other), None, "{other:x?}");
        }
    }
}
