//! Whether and how call stacks are taken.

/// Whether and how call stacks are taken. The discriminants are those of `enum gp_stack_mode` in
/// `bpf/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[repr(u32)]
pub enum StackMode {
    /// By the program's own unwinding information, for each call path once.
    Auto = 3,
    /// Along the frame pointers, as far as these lead.
    Fp = 1,
    /// By the program's own unwinding information, for every allocation.
    Dwarf = 2,
    /// Not at all.
    #[default]
    Off = 0,
}

impl StackMode {
    /// Whether stacks are taken.
    pub fn is_on(self) -> bool {
        self != Self::Off
    }
}
