//! Location of argument values at function entry.

use crate::{Access, ArgumentPlace};

/// A value that the BPF side reads at function entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryValue {
    /// Register, stack slot, or none.
    pub place: ArgumentPlace,
    /// Number of the register or slot.
    pub index: u8,
    /// 32 or 64: the upper half of a 32-bit argument is undefined.
    pub bits: u8,
    /// Interpretation of the content.
    pub access: Access,
    /// Offset for [`Access::Behind`] and [`Access::Plus`], bytes.
    pub offset: u32,
}

impl EntryValue {
    /// A value that the function does not have.
    pub const NONE: Self = Self {
        place: ArgumentPlace::None,
        index: 0,
        bits: 64,
        access: Access::Plain,
        offset: 0,
    };

    /// What the function returns.
    pub const RESULT: Self = Self {
        place: ArgumentPlace::Result,
        ..Self::NONE
    };

    /// 64-bit integer argument `index` (0 is `rdi`).
    pub const fn argument(index: u8) -> Self {
        Self {
            place: ArgumentPlace::Argument,
            index,
            ..Self::NONE
        }
    }

    /// The same value, truncated to its lower 32 bits.
    pub const fn bits32(self) -> Self {
        Self { bits: 32, ..self }
    }

    /// Stack slot `index` above the return address (0 is `[rsp+8]`).
    pub const fn stack(index: u8) -> Self {
        Self {
            place: ArgumentPlace::Stack,
            ..Self::argument(index)
        }
    }

    /// The value in memory `offset` bytes from the pointer that `self` describes.
    pub const fn behind(self, offset: u32) -> Self {
        Self {
            access: Access::Behind,
            offset,
            ..self
        }
    }

    /// The value in memory `second` bytes from the pointer that is `first` bytes from the pointer that `self` describes.
    pub const fn behind_twice(self, first: u16, second: u16) -> Self {
        Self {
            access: Access::Twice,
            offset: first as u32 | (second as u32) << 16,
            ..self
        }
    }

    /// The address `offset` bytes from the pointer that `self` describes.
    pub const fn plus(self, offset: u32) -> Self {
        Self {
            access: Access::Plus,
            offset,
            ..self
        }
    }

    /// Whether the function has the value.
    pub const fn is_there(self) -> bool {
        !matches!(self.place, ArgumentPlace::None)
    }
}
