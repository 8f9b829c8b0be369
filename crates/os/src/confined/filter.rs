//! The seccomp filter.

use super::{
    ABOUT_FILES, ABOUT_PATHS, ALLOWED, ARCHITECTURE, ARCHITECTURE_AT, ARGUMENTS_AT, ConfinedRole,
    NUMBER_AT,
};
use nix::libc::{self, sock_filter, sock_fprog};
use std::ffi::{c_long, c_void};
use std::io;

/// Installs the filter.
pub(super) fn filter(role: ConfinedRole) -> io::Result<()> {
    let mut program = program(role);
    let program = sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(u16::MAX),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `len` is the length of the program, which the kernel copies.
    #[allow(unsafe_code)]
    let result = unsafe {
        let program = (&raw const program).cast::<c_void>();
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, program)
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The filter: any other system call than those of [`ALLOWED`] and `role` kills the process.
fn program(role: ConfinedRole) -> Vec<sock_filter> {
    let mut program = vec![
        load(ARCHITECTURE_AT),
        sock_filter {
            jt: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, ARCHITECTURE)
        },
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_AT),
    ];
    for call in ALLOWED.iter().chain(role.calls()) {
        program.extend([unless(number(*call)), answer(libc::SECCOMP_RET_ALLOW)]);
    }
    let no_file = libc::SECCOMP_RET_ERRNO | libc::ENOENT.cast_unsigned();
    let by_number = libc::AT_EMPTY_PATH.cast_unsigned();
    for (call, flags) in ABOUT_FILES {
        program.extend([
            sock_filter {
                jf: 4,
                ..unless(number(call))
            },
            load(ARGUMENTS_AT + 8 * flags),
            sock_filter {
                jf: 1,
                ..statement(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, by_number)
            },
            answer(libc::SECCOMP_RET_ALLOW),
            answer(no_file),
        ]);
    }
    for call in ABOUT_PATHS {
        program.extend([unless(number(*call)), answer(no_file)]);
    }
    program.push(answer(libc::SECCOMP_RET_KILL_PROCESS));
    program
}

fn load(at: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

fn answer(action: u32) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, action)
}

/// Skips the next statement unless the value is equal.
fn unless(value: u32) -> sock_filter {
    sock_filter {
        jf: 1,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
    }
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: u16::try_from(code).unwrap_or(u16::MAX),
        jt: 0,
        jf: 0,
        k,
    }
}
