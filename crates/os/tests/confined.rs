//! Tests of [`gpuprobe_os::confined`] in a process of its own, which this executable is too. Root is not
//! needed.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, unsafe_code)]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode};

use nix::libc;

const TEST: &str = "files_are_found_by_number_only_whichever_call_asks";
/// The argument of the confined process.
const INSIDE: &str = "inside";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|other| other == word);
    if has(INSIDE) {
        return inside();
    }
    if has("--list") {
        println!("{TEST}: test");
        return ExitCode::SUCCESS;
    }
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program).arg(INSIDE).status().unwrap();
    let (word, failed) = if status.success() {
        ("ok", 0)
    } else {
        println!("the confined process: {status}");
        ("FAILED", 1)
    };
    println!("test {TEST} ... {word}\n");
    println!(
        "test result: {word}. {} passed; {failed} failed",
        1 - failed
    );
    ExitCode::from(failed)
}

/// The status is the number of the first call that answers something else.
fn inside() -> ExitCode {
    let file = File::open("/proc/self/exe").unwrap();
    let bytes = file.metadata().unwrap().len();
    let opened = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    gpuprobe_os::confined::confine(64 << 20).unwrap();
    for (number, call) in (1..).zip(Stat::ALL) {
        if call.size(&opened) != Ok(bytes) || call.size(c"/etc/passwd") != Err(libc::ENOENT) {
            return ExitCode::from(number);
        }
    }
    ExitCode::SUCCESS
}

/// The system calls by which a file's size is asked for.
#[derive(Clone, Copy)]
enum Stat {
    /// glibc before 2.33.
    #[cfg(target_arch = "x86_64")]
    ByPath(libc::c_long),
    Newfstatat,
}

impl Stat {
    const ALL: &[Self] = &[
        #[cfg(target_arch = "x86_64")]
        Self::ByPath(libc::SYS_stat),
        #[cfg(target_arch = "x86_64")]
        Self::ByPath(libc::SYS_lstat),
        Self::Newfstatat,
    ];

    /// The size in bytes, or the error's number.
    fn size(self, path: &CStr) -> Result<u64, i32> {
        let mut about = MaybeUninit::<libc::stat>::zeroed();
        let (path, into) = (path.as_ptr(), about.as_mut_ptr());
        // SAFETY: the path ends in a null byte, and the kernel writes one `stat`.
        let result = unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::ByPath(call) => libc::syscall(call, path, into),
                Self::Newfstatat => {
                    libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, into, 0)
                }
            }
        };
        if result != 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap());
        }
        // SAFETY: the kernel has filled it, and zeroes are valid too.
        let about = unsafe { about.assume_init() };
        Ok(about.st_size.cast_unsigned())
    }
}
