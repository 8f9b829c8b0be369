//! How the kernel executes a probed instruction.
//!
//! A uprobe replaces the first byte of its function by a breakpoint. The kernel emulates some
//! instructions; most are executed out of line in a single step, which costs a second trap, 10 to 40 times
//! as much as measured. Some are rejected, and if no process has the file mapped at that moment, without
//! an error. Determined by experiment on Linux 6.1, 6.12, 6.18 and 7.2; a change between two of
//! these is attributed to the later one.

use std::sync::LazyLock;

use gpuprobe_os::kernel;

/// `endbr64`, with which functions begin if indirect branches are checked (CET).
pub(crate) const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// How the kernel executes a probed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum FirstInstruction {
    /// Emulated: one trap per call.
    Emulated,
    /// Executed out of line in a single step: two traps per call.
    Stepped,
    /// A nop of five bytes that the kernel replaces by a `call` (Linux 6.18 to 7.2), which overwrites
    /// what a function keeps below its stack pointer, and crashes children forked meanwhile.
    Replaced,
    /// No probe is possible.
    Refused,
}

/// Bytes of a function's code that decide where it is probed: `endbr64` and the longest instruction.
pub(crate) const LOOKED_AT: u64 = ENDBR64.len() as u64 + 15;

/// A release of Linux: version and patch level.
type Release = (u32, u32);

/// (0, 0) if it is unknown.
fn release_of(text: &str) -> Release {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    (next().unwrap_or(0), next().unwrap_or(0))
}

/// Where a function that begins with `code` is probed, in bytes from there, and the instruction there.
pub(crate) fn entry(code: &[u8]) -> (u64, FirstInstruction) {
    static RUNNING: LazyLock<Release> = LazyLock::new(|| release_of(&kernel::release()));
    match cfg!(target_arch = "x86_64") {
        true => entry_x86_64(code, *RUNNING),
        // Not measured, so nothing is reported.
        false => (0, FirstInstruction::Emulated),
    }
}

/// Behind `endbr64`, if the kernel emulates the instruction there: it is on every way into the function,
/// and leaves the stack pointer and the arguments as they are.
fn entry_x86_64(code: &[u8], kernel: Release) -> (u64, FirstInstruction) {
    let behind = code.strip_prefix(&ENDBR64);
    match behind.map(|behind| first_x86_64(behind, kernel)) {
        Some(FirstInstruction::Emulated) => (ENDBR64.len() as u64, FirstInstruction::Emulated),
        _ => (0, first_x86_64(code, kernel)),
    }
}

fn first_x86_64(code: &[u8], kernel: Release) -> FirstInstruction {
    match code {
        // push of a register
        [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] => return FirstInstruction::Emulated,
        // nop
        [0x90, ..] | [0x66, 0x90, ..] => return FirstInstruction::Emulated,
        // Five bytes, as `kernel/events/uprobes.c` looks for; a fix is expected after 7.2.
        [0x0f, 0x1f, 0x44, 0x00, 0x00, ..] if ((6, 18)..=(7, 2)).contains(&kernel) => {
            return FirstInstruction::Replaced;
        }
        // Other long ones: not on 6.12.
        [0x0f, 0x1f, ..] if kernel >= (6, 18) => return FirstInstruction::Emulated,
        // call, jmp, and jumps on a condition
        [0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] => {
            return FirstInstruction::Emulated;
        }
        _ => {}
    }
    for byte in code {
        match byte {
            // lock, and the segments es, cs, ss, ds
            0xf0 | 0x26 | 0x2e | 0x36 | 0x3e => return FirstInstruction::Refused,
            // Other prefixes, and REX.
            0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f => {}
            // EVEX, in and out, interrupts, halting
            0x62 | 0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef | 0xcc..=0xcf | 0xf1 | 0xf4 => {
                return FirstInstruction::Refused;
            }
            _ => break,
        }
    }
    FirstInstruction::Stepped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_kernels_emulate_less() {
        for (release, of_long_nop) in [
            ("6.12.117+deb13-cloud-amd64", FirstInstruction::Stepped),
            ("6.18.15\n", FirstInstruction::Emulated),
            ("7.0-rc1", FirstInstruction::Emulated),
            ("", FirstInstruction::Stepped),
        ] {
            let kernel = release_of(release);
            let long_nop = [0x0f, 0x1f, 0x40, 0x00];
            assert_eq!(first_x86_64(&long_nop, kernel), of_long_nop, "{release}");
            assert_eq!(first_x86_64(&[0x55], kernel), FirstInstruction::Emulated);
        }
    }

    #[test]
    fn instructions_are_classified() {
        for (first, codes) in [
            (
                FirstInstruction::Emulated,
                &[
                    &[0x55, 0x48, 0x89, 0xe5][..], // push %rbp
                    &[0x41, 0x57],                 // push %r15
                    &[0x90],                       // nop
                    &[0x66, 0x90],                 // xchg %ax,%ax
                    &[0xeb, 0x00],                 // jmp
                    &[0xe9, 0, 0, 0, 0],           // jmp
                    &[0x0f, 0x84, 0, 0, 0, 0],     // je
                    &[0x74, 0x00],                 // je
                    &[0x0f, 0x1f, 0x40, 0x00],     // nopl
                ][..],
            ),
            (
                FirstInstruction::Stepped,
                &[
                    &[0xf3, 0x0f, 0x1e, 0xfa], // endbr64
                    &[0x31, 0xc0],             // xor %eax,%eax
                    &[0x48, 0x89, 0xf8],       // mov %rdi,%rax
                    &[0x48, 0x83, 0xec, 0x08], // sub $8,%rsp
                    &[0xc8, 0x00, 0x00, 0x00], // enter
                    &[0x6a, 0x01],             // push $1
                    &[0xc3],                   // ret
                    &[0xc5, 0xf8, 0x77],       // vzeroupper
                    &[],
                ],
            ),
            (
                FirstInstruction::Refused,
                &[
                    &[0x3e, 0x55],                   // ds push %rbp
                    &[0x2e, 0x90],                   // cs nop
                    &[0xf0, 0xff, 0x44, 0x24, 0xf8], // lock incl -8(%rsp)
                    &[0xcc],                         // int3
                    &[0xf4],                         // hlt
                    &[0xe6, 0x01],                   // out %al,$1
                    &[0x62, 0xa1, 0x7d, 0x40, 0xef], // vpxord
                ],
            ),
        ] {
            for code in codes {
                assert_eq!(first_x86_64(code, (7, 2)), first, "{code:02x?}");
            }
        }
    }

    #[test]
    fn nops_of_five_bytes_are_replaced_from_6_18_to_7_2() {
        let nop = [0x0f, 0x1f, 0x44, 0x00, 0x00, 0x55];
        for (kernel, expected) in [
            ((6, 12), FirstInstruction::Stepped),
            ((6, 18), FirstInstruction::Replaced),
            ((7, 0), FirstInstruction::Replaced),
            ((7, 2), FirstInstruction::Replaced),
            ((7, 3), FirstInstruction::Emulated),
        ] {
            assert_eq!(first_x86_64(&nop, kernel), expected, "{kernel:?}");
        }
    }

    #[test]
    fn functions_with_endbr64_are_probed_behind_it() {
        let at = |code: &[u8]| entry_x86_64(&[&ENDBR64, code].concat(), (6, 18));
        assert_eq!(at(&[0x55]), (4, FirstInstruction::Emulated));
        assert_eq!(at(&[0x41, 0x57]), (4, FirstInstruction::Emulated));
        // Stepped, refused and replaced there: no better than at the beginning.
        assert_eq!(at(&[0x48, 0x83, 0xec]), (0, FirstInstruction::Stepped));
        assert_eq!(at(&[0x3e, 0x55]), (0, FirstInstruction::Stepped));
        let nop = [0x0f, 0x1f, 0x44, 0x00, 0x00];
        assert_eq!(at(&nop), (0, FirstInstruction::Stepped));
        assert_eq!(at(&[]), (0, FirstInstruction::Stepped));
        let plain = entry_x86_64(&[0x55, 0x48], (6, 18));
        assert_eq!(plain, (0, FirstInstruction::Emulated));
    }
}
