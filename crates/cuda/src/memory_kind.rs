//! Memory kinds and sets of them.

use std::fmt;

named! {
    /// Kind of the memory that a function allocates or frees.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
    #[repr(u8)]
    pub enum MemoryKind {
        /// Linear device memory without padding.
        Device = "device",
        /// Device memory with rows padded to a pitch.
        Pitched = "pitched",
        /// CUDA arrays, including mipmapped ones. Their size is computed from the descriptor.
        Array = "array",
        /// Managed (unified) memory, which migrates between host and GPU.
        Managed = "managed",
        /// Pinned host memory, allocated by CUDA.
        Pinned = "pinned",
        /// The program's own host memory, page-locked by CUDA.
        Registered = "registered",
        /// Stream-ordered memory, from a pool.
        Async = "async",
        /// Physical memory of the virtual memory management API.
        Vmm = "vmm",
        /// Static variables of modules.
        Static = "static",
        /// Memory of allocation nodes of graphs.
        Graph = "graph",
        /// Memory of another process or API.
        Imported = "imported",
        /// Pageable host memory. Only nsys exports have it.
        #[value(skip)]
        Pageable = "pageable",
        /// Managed variables of modules. Only nsys exports have this kind; traced ones are
        /// [`Self::Static`].
        #[value(skip)]
        ManagedStatic = "managed static",
        /// Unknown kind in an nsys export, or memory at a location that gpuprobe doesn't know.
        #[value(skip)]
        Unknown = "unknown",
        /// A block of a framework's caching allocator, within memory of another kind.
        #[value(skip)]
        Tensor = "tensor",
    }
}

/// Total to which memory is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Belongs {
    /// Total of GPU memory.
    Gpu,
    /// Total of host memory.
    Host,
    /// Memory of another process or API, which is counted there, and memory at an unknown location.
    Elsewhere,
}

impl Belongs {
    /// The total of memory with this `CUmemLocationType`, as of CUDA 13.5; `None` for unknown types.
    pub const fn at(location_type: u32) -> Option<Self> {
        match location_type {
            AT_DEVICE | AT_LOCALITY_DOMAIN => Some(Self::Gpu),
            // The host, a NUMA node of it, that of the thread.
            2..=4 => Some(Self::Host),
            _ => None,
        }
    }
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const AT_DEVICE: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`: a part of a device's memory.
pub const AT_LOCALITY_DOMAIN: u32 = 6;

/// Address space of an allocation's address or handle: equal numbers in different spaces are
/// different allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AddressSpace {
    /// Addresses of device memory.
    Device,
    /// Pinned host memory allocated by the driver.
    Pinned,
    /// Host memory allocated by the program and registered.
    Registered,
    /// Handles of CUDA arrays.
    Arrays,
    /// Numbers that gpuprobe gives to physical allocations.
    Physical,
    /// Addresses of memory opened through another process's share handle.
    Shared,
    /// Addresses of module variables.
    Variables,
}

impl MemoryKind {
    /// Whether traced functions allocate the kind. The other kinds occur only in exports, or are
    /// tensors, which are parts of other allocations.
    pub const fn is_traced(self) -> bool {
        !matches!(
            self,
            Self::Pageable | Self::ManagedStatic | Self::Unknown | Self::Tensor
        )
    }

    /// Total to which the kind is added, unless a handle or a pool places it in host memory.
    pub const fn belongs(self) -> Belongs {
        match self {
            Self::Pinned | Self::Registered | Self::Pageable => Belongs::Host,
            Self::Imported => Belongs::Elsewhere,
            _ => Belongs::Gpu,
        }
    }

    /// Address space of the kind, as far as the function determines it.
    pub const fn space(self) -> AddressSpace {
        match self {
            Self::Pinned => AddressSpace::Pinned,
            Self::Registered | Self::Pageable => AddressSpace::Registered,
            Self::Array => AddressSpace::Arrays,
            Self::Vmm => AddressSpace::Physical,
            Self::Static | Self::ManagedStatic => AddressSpace::Variables,
            Self::Device | Self::Pitched | Self::Managed | Self::Async => AddressSpace::Device,
            Self::Graph | Self::Imported | Self::Unknown | Self::Tensor => AddressSpace::Device,
        }
    }

    /// Whether its addresses are always device memory.
    pub const fn is_at_device(self) -> bool {
        matches!(self, Self::Device | Self::Pitched | Self::Async)
    }

    /// Whether its addresses say what a copy goes between: device memory and page-locked host memory.
    pub const fn has_place(self) -> bool {
        self.is_at_device() || matches!(self, Self::Pinned | Self::Registered)
    }

    /// Whether it is freed when its context is destroyed. Pool allocations and physical memory
    /// remain (observed with driver 580).
    pub const fn ends_with_context(self) -> bool {
        !matches!(self, Self::Async | Self::Vmm | Self::Graph | Self::Unknown)
    }

    /// Whether its size is computed from a descriptor; the driver may allocate more.
    pub const fn is_computed(self) -> bool {
        matches!(self, Self::Array)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Bit set of [`MemoryKind`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSet(u16);

impl KindSet {
    /// The set of all kinds.
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
        let bits = kinds.into_iter().map(|kind| 1 << kind as u16);
        Self(bits.fold(0, |set, bit| set | bit))
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
            let one: KindSet = [kind].into_iter().collect();
            let mut kinds = MemoryKind::ALL.into_iter();
            assert!(kinds.all(|other| one.contains(other) == (other == kind)));
        }
    }
}
