//! Kinds of memory as exports number them.

use gpuprobe_cuda::MemoryKind;

/// A row of `ENUM_CUDA_MEM_KIND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The number in tables.
    pub id: u8,
    /// The name in `ENUM_CUDA_MEM_KIND`.
    pub name: &'static str,
    /// The label there.
    pub label: &'static str,
    /// The name in our reports.
    pub short: &'static str,
    /// It is memory of the host.
    pub is_host: bool,
}

const fn kind(
    id: u8,
    name: &'static str,
    label: &'static str,
    short: &'static str,
    is_host: bool,
) -> Kind {
    Kind {
        id,
        name,
        label,
        short,
        is_host,
    }
}

/// All kinds, by number.
pub const KINDS: [Kind; 8] = [
    kind(
        0,
        "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE",
        "Pageable",
        "pageable",
        true,
    ),
    kind(
        1,
        "CUDA_MEMOPR_MEMORY_KIND_PINNED",
        "Pinned",
        "pinned",
        true,
    ),
    kind(
        2,
        "CUDA_MEMOPR_MEMORY_KIND_DEVICE",
        "Device",
        "device",
        false,
    ),
    kind(3, "CUDA_MEMOPR_MEMORY_KIND_ARRAY", "Array", "array", false),
    kind(
        4,
        "CUDA_MEMOPR_MEMORY_KIND_MANAGED",
        "Managed",
        "managed",
        false,
    ),
    kind(
        5,
        "CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC",
        "Device Static",
        "static",
        false,
    ),
    kind(
        6,
        "CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC",
        "Managed Static",
        "managed static",
        false,
    ),
    kind(
        7,
        "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN",
        "Unknown",
        "unknown",
        false,
    ),
];

/// Which kind of an export our kinds are, by their names in reports. What is not listed is
/// [`UNKNOWN`].
const OURS: &[(&str, u8)] = &[
    ("device", 2),
    ("pitched", 2),
    ("async", 2),
    ("pool", 2),
    ("vmm", 2),
    ("graph", 2),
    ("imported", 2),
    ("array", 3),
    ("mipmapped array", 3),
    ("managed", 4),
    ("pinned", 1),
    ("registered", 1),
    ("pageable", 0),
    ("static", 5),
];

/// The number of page-locked memory of the host.
pub const PINNED: u8 = 1;
/// The number of the kind that is none of the others.
pub const UNKNOWN: u8 = 7;

/// The kind with number `id`; numbers that exports do not have are unknown.
pub fn of_id(id: u8) -> &'static Kind {
    KINDS
        .get(usize::from(id))
        .unwrap_or(&KINDS[usize::from(UNKNOWN)])
}

/// The kind of an export that stands for `kind`.
pub fn of(kind: MemoryKind) -> &'static Kind {
    let found = OURS.iter().find(|(name, _)| *name == kind.name());
    of_id(found.map_or(UNKNOWN, |(_, id)| *id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_cuda::FUNCTIONS;

    #[test]
    fn numbers_are_indices() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert_eq!(usize::from(kind.id), index);
        }
        assert_eq!(of_id(200).short, "unknown");
    }

    #[test]
    fn every_traced_kind_has_a_number() {
        for function in FUNCTIONS.iter().filter(|f| f.op.is_memory()) {
            assert_ne!(of(function.kind).id, UNKNOWN, "{}", function.kind.name());
        }
    }
}
