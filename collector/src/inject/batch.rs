//! Where batches leave the process.
#![allow(unsafe_code)]

/// Does nothing. gpuprobe places its probe here and reads the batch from the arguments.
///
/// Its first instruction is one that the kernel emulates rather than steps over, which is what
/// most of a probe's cost depends on: the others are there so that it can be.
// SAFETY: only gpuprobe's own library exports it.
#[cfg_attr(feature = "injection", unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) extern "C" fn gpuprobe_activity_batch(_batch: *const u8, _bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("push rbp", "mov rbp, rsp", "pop rbp", "ret");
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("ret");
}
