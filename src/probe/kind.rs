//! Kinds of uprobe attachment, and which of them this kernel supports.
//!
//! Support is determined by a self-test, not by a version number or a successful load: it attaches to
//! a function of this executable, calls it, and checks that entry and return were recorded.

use std::fmt;

gpuprobe_cuda::named! {
    /// Kinds of attachment, best first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
    pub enum AttachKind {
        /// One program for entry and return (`uprobe.session`, Linux 6.13).
        Session = "uprobe.session",
        /// Two programs, each attached to a whole library by one system call (`uprobe.multi`, Linux 6.6).
        Multi = "uprobe.multi",
        /// A perf event for each function and direction, with attach cookies (Linux 5.15).
        Perf = "perf-event uprobes",
    }
}

impl AttachKind {
    /// Whether each function and direction is attached separately.
    pub const fn is_one_by_one(self) -> bool {
        matches!(self, Self::Perf)
    }
}

impl fmt::Display for AttachKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The function of the self-test. It begins like the functions of the CUDA libraries, with an
/// instruction that the kernel emulates.
#[allow(unsafe_code)]
#[cfg(target_arch = "x86_64")]
// SAFETY: a complete function body that keeps the C calling convention.
#[unsafe(naked)]
pub(super) extern "C" fn gpuprobe_self_test() {
    std::arch::naked_asm!("push rbp", "mov rbp, rsp", "pop rbp", "ret")
}

/// The function of the self-test.
#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
pub(super) extern "C" fn gpuprobe_self_test() {
    std::hint::black_box(0);
}
