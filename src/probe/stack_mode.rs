//! Modes of call stack capture.

use gpuprobe_model::abi::stacks;

/// Mode of call stack capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[repr(u32)]
pub enum StackMode {
    /// DWARF CFI, once for each call path.
    Auto = stacks::AUTO,
    /// Frame-pointer unwinding by the kernel.
    Fp = stacks::FRAME_POINTERS,
    /// DWARF CFI for every allocation.
    Dwarf = stacks::COPY,
    /// No call stacks are captured.
    #[default]
    Off = stacks::OFF,
}

impl StackMode {
    /// Whether stacks are captured.
    pub fn is_on(self) -> bool {
        self != Self::Off
    }
}
