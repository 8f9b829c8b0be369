//! Modes of call stack capture.

/// Mode of call stack capture. The discriminants are those of `enum gp_stack_mode` in `bpf/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[repr(u32)]
pub enum StackMode {
    /// DWARF CFI, once for each call path.
    Auto = 3,
    /// Frame-pointer unwinding by the kernel.
    Fp = 1,
    /// DWARF CFI for every allocation.
    Dwarf = 2,
    /// No call stacks are captured.
    #[default]
    Off = 0,
}

impl StackMode {
    /// Whether stacks are captured.
    pub fn is_on(self) -> bool {
        self != Self::Off
    }
}
