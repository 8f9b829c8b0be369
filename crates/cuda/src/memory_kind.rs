//! Kinds of memory.

use std::fmt;

/// The kind of memory that a function hands out or takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[repr(u8)]
pub enum MemoryKind {
    /// Plain device memory.
    Device,
    /// Device memory whose rows are padded to a pitch.
    Pitched,
    /// CUDA arrays, mipmapped ones too. Their size is computed from their descriptor.
    Array,
    /// Memory that moves between host and GPU.
    Managed,
    /// Page-locked host memory.
    Pinned,
    /// The program's own host memory, page-locked.
    Registered,
    /// Stream-ordered memory, from a pool.
    Async,
    /// Physical memory of the virtual memory management.
    Vmm,
    /// Variables of modules.
    Static,
    /// Memory that nodes of graphs allocate.
    Graph,
    /// Another process's or API's memory.
    Imported,
    /// Pageable memory of the host. Only exports of Nsight Systems have it.
    #[cfg_attr(feature = "clap", value(skip))]
    Pageable,
    /// Managed variables of modules. Only exports have it; to us, they are [`Self::Static`].
    #[cfg_attr(feature = "clap", value(skip))]
    ManagedStatic,
    /// A kind that an export does not tell.
    #[cfg_attr(feature = "clap", value(skip))]
    Unknown,
    /// A block of a framework's allocator, which is inside of memory of another kind.
    #[cfg_attr(feature = "clap", value(skip))]
    Tensor,
}

/// To which sum memory of a kind belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Belongs {
    /// It takes memory of a GPU.
    Gpu,
    /// It takes memory of the host.
    Host,
    /// Another process or API has it: not counted again.
    Elsewhere,
}

/// What an address of memory is: addresses of different spaces have nothing to do with each
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Space {
    /// An address at the device, freed as such.
    Device,
    /// Page-locked memory of the driver's.
    Pinned,
    /// Page-locked memory of the program's.
    Registered,
    /// A handle of an array.
    Arrays,
    /// A number that we gave to physical memory.
    Physical,
    /// An address that was opened by a name from another process.
    Shared,
    /// A variable.
    Variables,
}

impl MemoryKind {
    /// Number of kinds.
    pub const COUNT: usize = 15;

    /// Every kind, in the order of reports.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Device,
        Self::Pitched,
        Self::Array,
        Self::Managed,
        Self::Pinned,
        Self::Registered,
        Self::Async,
        Self::Vmm,
        Self::Static,
        Self::Graph,
        Self::Imported,
        Self::Pageable,
        Self::ManagedStatic,
        Self::Unknown,
        Self::Tensor,
    ];

    /// Whether the functions that we trace hand it out. The others only exports have, and tensors are no
    /// memory of their own.
    pub const fn is_traced(self) -> bool {
        !matches!(
            self,
            Self::Pageable | Self::ManagedStatic | Self::Unknown | Self::Tensor
        )
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Pitched => "pitched",
            Self::Array => "array",
            Self::Managed => "managed",
            Self::Pinned => "pinned",
            Self::Registered => "registered",
            Self::Async => "async",
            Self::Vmm => "vmm",
            Self::Static => "static",
            Self::Graph => "graph",
            Self::Imported => "imported",
            Self::Pageable => "pageable",
            Self::ManagedStatic => "managed static",
            Self::Unknown => "unknown",
            Self::Tensor => "tensor",
        }
    }

    /// The sum that it belongs to, unless a handle or a pool says that it is the host's.
    pub const fn belongs(self) -> Belongs {
        match self {
            Self::Pinned | Self::Registered | Self::Pageable => Belongs::Host,
            Self::Imported => Belongs::Elsewhere,
            _ => Belongs::Gpu,
        }
    }

    /// What its addresses are, as far as its functions alone tell.
    pub const fn space(self) -> Space {
        match self {
            Self::Pinned => Space::Pinned,
            Self::Registered | Self::Pageable => Space::Registered,
            Self::Array => Space::Arrays,
            Self::Vmm => Space::Physical,
            Self::Static | Self::ManagedStatic => Space::Variables,
            Self::Device | Self::Pitched | Self::Managed | Self::Async => Space::Device,
            Self::Graph | Self::Imported | Self::Unknown | Self::Tensor => Space::Device,
        }
    }

    /// Whether its addresses are always those of a device's own memory.
    pub const fn is_at_device(self) -> bool {
        matches!(self, Self::Device | Self::Pitched | Self::Async)
    }

    /// Whether it goes when the context ends in which it was made. What comes from pools, and
    /// physical memory, stays: seen with driver 580.
    pub const fn ends_with_context(self) -> bool {
        !matches!(self, Self::Async | Self::Vmm | Self::Graph)
    }

    /// Whether its size is computed from a descriptor: the driver may take more.
    pub const fn is_computed(self) -> bool {
        matches!(self, Self::Array)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSet(u16);

impl KindSet {
    /// All kinds.
    pub const ALL: Self = Self((1 << MemoryKind::COUNT) - 1);

    /// Whether `kind` is in the set.
    pub const fn contains(self, kind: MemoryKind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }
}

impl Default for KindSet {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<MemoryKind> for KindSet {
    fn from_iter<I: IntoIterator<Item = MemoryKind>>(kinds: I) -> Self {
        Self(
            kinds
                .into_iter()
                .fold(0, |set, kind| set | 1 << kind as u16),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_listed_in_order() {
        for (index, kind) in MemoryKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert!(KindSet::ALL.contains(kind));
        }
        let two: KindSet = [MemoryKind::Vmm, MemoryKind::Pinned].into_iter().collect();
        assert!(two.contains(MemoryKind::Vmm) && !two.contains(MemoryKind::Device));
    }
}
