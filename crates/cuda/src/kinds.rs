//! Kinds of memory as exports and CUPTI number them.

use crate::MemoryKind;

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
    /// The name in reports of what the GPU did.
    pub long: &'static str,
}

macro_rules! kinds {
    ($($id:literal $name:literal $label:literal $kind:ident $long:literal;)+) => {
        [$(Kind {
            id: $id,
            name: concat!("CUDA_MEMOPR_MEMORY_KIND_", $name),
            label: $label,
            kind: MemoryKind::$kind,
            long: $long,
        }),+]
    };
}

/// All kinds, by number.
pub const KINDS: [Kind; 8] = kinds! {
    0 "PAGEABLE"       "Pageable"       Pageable      "pageable";
    1 "PINNED"         "Pinned"         Pinned        "pinned";
    2 "DEVICE"         "Device"         Device        "device";
    3 "ARRAY"          "Array"          Array         "array";
    4 "MANAGED"        "Managed"        Managed       "managed";
    5 "DEVICE_STATIC"  "Device Static"  Static        "device static";
    6 "MANAGED_STATIC" "Managed Static" ManagedStatic "managed static";
    7 "UNKNOWN"        "Unknown"        Unknown       "unknown";
};

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

/// The kind with this number of CUPTI's (`CUpti_ActivityMemoryKind`), which has 0 for what is not
/// known and begins with pageable memory after that.
pub fn of_cupti(kind: u32) -> &'static Kind {
    of_id(
        kind.checked_sub(1)
            .map_or(UNKNOWN, |id| id.try_into().unwrap_or(UNKNOWN)),
    )
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
        | MemoryKind::Imported
        | MemoryKind::Tensor => 2,
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

impl Kind {
    /// CUPTI's number of it.
    pub fn cupti(&self) -> u8 {
        match self.id {
            UNKNOWN => 0,
            id => id + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_indices() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert_eq!(usize::from(kind.id), index);
        }
        assert_eq!(of_id(200).kind, MemoryKind::Unknown);
    }

    #[test]
    fn cupti_begins_with_what_is_not_known() {
        let names = [7, 0, 1, 2, 3, 4, 5, 6, 7];
        for (kind, expected) in (0u32..).zip(names) {
            assert_eq!(of_cupti(kind).id, expected);
        }
        assert_eq!(of_cupti(u32::MAX).id, UNKNOWN);
        for kind in &KINDS {
            assert_eq!(of_cupti(kind.cupti().into()), kind);
        }
        let kinds = [2, 3, 4].map(|kind| of_cupti(kind).kind);
        assert_eq!(
            kinds,
            [MemoryKind::Pinned, MemoryKind::Device, MemoryKind::Array]
        );
    }

    #[test]
    fn our_kinds_have_a_number_in_exports() {
        for kind in MemoryKind::ALL {
            let belongs = of(kind).kind.belongs();
            let is_ours = kind != MemoryKind::Imported;
            assert!(!is_ours || belongs == kind.belongs(), "{kind}");
            assert_eq!(
                of(kind).id == UNKNOWN,
                kind == MemoryKind::Unknown,
                "{kind}"
            );
        }
        for kind in &KINDS {
            assert_eq!(of(kind.kind), kind);
        }
        let told = |id, called| of_call(id, Some(called));
        assert_eq!(told(2, MemoryKind::Async), MemoryKind::Async);
        assert_eq!(told(4, MemoryKind::Async), MemoryKind::Managed);
    }
}
