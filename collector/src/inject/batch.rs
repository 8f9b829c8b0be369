//! Exit point of batches.
#![allow(unsafe_code)]

/// Empty function: gpuprobe attaches a probe to it and reads the batch from the arguments.
///
/// The first instruction is one that the kernel emulates instead of single-stepping, which
/// determines most of a probe's cost; the other instructions exist to make it valid.
// SAFETY: only the collector library exports it.
#[cfg_attr(feature = "injection", unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) extern "C" fn gpuprobe_activity_batch(_batch: *const u8, _bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("push rbp", "mov rbp, rsp", "pop rbp", "ret");
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("ret");
}
