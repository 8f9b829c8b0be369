//! Where the kernel side finds a value at function entry.

/// Where a value is at function entry. The discriminants are those of `enum gp_place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// The function has no such value.
    None = 0,
    /// Integer argument register, 0 to 5.
    Argument = 1,
    /// 8-byte stack slot above the return address.
    Stack = 2,
}

/// What to do with what is in the place. The discriminants are those of `enum gp_access`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// It is the value.
    Plain = 0,
    /// It is a pointer; the value is read from memory at an offset behind it.
    Behind = 1,
    /// It is a pointer; the value is a pointer at an offset behind it.
    Plus = 2,
}

/// A value that the kernel side reads at function entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where it is.
    pub place: Place,
    /// Which register or slot.
    pub index: u8,
    /// 32 or 64: the upper half of a 32-bit argument is undefined.
    pub bits: u8,
    /// What to do with what is there.
    pub access: Access,
    /// The offset for that, in bytes.
    pub offset: u32,
}

impl Value {
    /// No value.
    pub const NONE: Self = Self {
        place: Place::None,
        index: 0,
        bits: 64,
        access: Access::Plain,
        offset: 0,
    };

    /// 64-bit integer argument `index` (0 is `rdi`).
    pub const fn argument(index: u8) -> Self {
        Self {
            place: Place::Argument,
            index,
            bits: 64,
            access: Access::Plain,
            offset: 0,
        }
    }

    /// 32-bit integer argument `index`.
    pub const fn argument32(index: u8) -> Self {
        Self::argument(index).bits32()
    }

    /// The same place, where only the lower 32 bits count.
    pub const fn bits32(self) -> Self {
        Self { bits: 32, ..self }
    }

    /// Stack slot `index` above the return address (0 is `[rsp+8]`).
    pub const fn stack(index: u8) -> Self {
        Self {
            place: Place::Stack,
            ..Self::argument(index)
        }
    }

    /// The value `offset` bytes behind the pointer that `self` describes.
    pub const fn behind(self, offset: u32) -> Self {
        Self {
            access: Access::Behind,
            offset,
            ..self
        }
    }

    /// The address `offset` bytes behind the pointer that `self` describes.
    pub const fn plus(self, offset: u32) -> Self {
        Self {
            access: Access::Plus,
            offset,
            ..self
        }
    }

    /// Whether the function has the value.
    pub const fn is_there(self) -> bool {
        !matches!(self.place, Place::None)
    }
}
