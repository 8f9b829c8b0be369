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
    /// The kind that it is to us.
    pub kind: MemoryKind,
}

const fn kind(id: u8, name: &'static str, label: &'static str, kind: MemoryKind) -> Kind {
    Kind {
        id,
        name,
        label,
        kind,
    }
}

/// All kinds, by number.
#[rustfmt::skip]
pub const KINDS: [Kind; 8] = [
    kind(0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable", MemoryKind::Pageable),
    kind(1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned", MemoryKind::Pinned),
    kind(2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device", MemoryKind::Device),
    kind(3, "CUDA_MEMOPR_MEMORY_KIND_ARRAY", "Array", MemoryKind::Array),
    kind(4, "CUDA_MEMOPR_MEMORY_KIND_MANAGED", "Managed", MemoryKind::Managed),
    kind(5, "CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC", "Device Static", MemoryKind::Static),
    kind(6, "CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC", "Managed Static", MemoryKind::ManagedStatic),
    kind(7, "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN", "Unknown", MemoryKind::Unknown),
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
    of_id(match kind {
        MemoryKind::Pageable => 0,
        MemoryKind::Pinned | MemoryKind::Registered => PINNED,
        MemoryKind::Device
        | MemoryKind::Pitched
        | MemoryKind::Async
        | MemoryKind::Vmm
        | MemoryKind::Graph
        | MemoryKind::Imported => 2,
        MemoryKind::Array => 3,
        MemoryKind::Managed => 4,
        MemoryKind::Static => 5,
        MemoryKind::ManagedStatic => 6,
        MemoryKind::Unknown => UNKNOWN,
    })
}

/// The kind of memory that a function of `called` handed out, where a table says that it was of the
/// kind with number `id`: tables know fewer kinds.
pub fn of_call(id: u8, called: Option<MemoryKind>) -> MemoryKind {
    let recorded = of_id(id);
    called
        .filter(|&called| of(called).id == recorded.id)
        .unwrap_or(recorded.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_cuda::FUNCTIONS;

    #[test]
    fn numbers_are_indices() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert_eq!(usize::from(kind.id), index);
            assert_eq!(of(kind.kind), kind);
        }
        assert_eq!(of_id(200).kind, MemoryKind::Unknown);
    }

    #[test]
    fn every_traced_kind_has_a_number() {
        let other = [
            of_call(2, Some(MemoryKind::Async)),
            of_call(4, Some(MemoryKind::Async)),
        ];
        assert_eq!(other, [MemoryKind::Async, MemoryKind::Managed]);
        for function in FUNCTIONS.iter().filter(|f| f.op.is_memory()) {
            assert_ne!(of(function.kind).id, UNKNOWN, "{}", function.kind.name());
        }
    }
}
