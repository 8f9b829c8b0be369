//! Numbers of memory kinds in nsys exports and in CUPTI.

use crate::MemoryKind;

/// A row of `ENUM_CUDA_MEM_KIND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemKindRow {
    /// Number in tables of exports.
    pub id: u8,
    /// Name of the value in the table `ENUM_CUDA_MEM_KIND`.
    pub name: &'static str,
    /// Label of the value in the table `ENUM_CUDA_MEM_KIND`.
    pub label: &'static str,
    /// The corresponding kind of gpuprobe.
    pub kind: MemoryKind,
    /// Name in reports of GPU activity.
    pub long: &'static str,
}

macro_rules! kinds {
    ($($id:literal $name:literal $label:literal $kind:ident $long:literal;)+) => {
        [$(MemKindRow {
            id: $id,
            name: concat!("CUDA_MEMOPR_MEMORY_KIND_", $name),
            label: $label,
            kind: MemoryKind::$kind,
            long: $long,
        }),+]
    };
}

/// All kinds, indexed by number.
pub const KINDS: [MemKindRow; 8] = kinds! {
    0 "PAGEABLE"       "Pageable"       Pageable      "pageable";
    1 "PINNED"         "Pinned"         Pinned        "pinned";
    2 "DEVICE"         "Device"         Device        "device";
    3 "ARRAY"          "Array"          Array         "array";
    4 "MANAGED"        "Managed"        Managed       "managed";
    5 "DEVICE_STATIC"  "Device Static"  Static        "device static";
    6 "MANAGED_STATIC" "Managed Static" ManagedStatic "managed static";
    7 "UNKNOWN"        "Unknown"        Unknown       "unknown";
};

/// Number of pinned (page-locked) host memory.
pub const PINNED: u8 = 1;
/// Number of device memory.
const DEVICE: u8 = 2;
/// Number of an unknown kind.
pub const UNKNOWN: u8 = 7;

/// The kind with number `id`; [`UNKNOWN`] for other numbers.
pub fn of_id(id: u8) -> &'static MemKindRow {
    KINDS
        .get(usize::from(id))
        .unwrap_or(&KINDS[usize::from(UNKNOWN)])
}

/// The kind with a `CUpti_ActivityMemoryKind`: CUPTI has 0 for unknown and starts with pageable
/// memory at 1.
pub fn of_cupti(kind: u32) -> &'static MemKindRow {
    let id = kind.checked_sub(1).and_then(|id| u8::try_from(id).ok());
    of_id(id.unwrap_or(UNKNOWN))
}

/// The kind in exports for `kind`: device memory has one, however it was allocated.
pub fn of(kind: MemoryKind) -> &'static MemKindRow {
    let same = KINDS.iter().find(|row| row.kind == kind);
    same.unwrap_or_else(|| match kind {
        MemoryKind::Registered => of_id(PINNED),
        _ => of_id(DEVICE),
    })
}

/// The kind of memory that a call allocated: exports distinguish fewer kinds than functions, so the
/// kind of the function, `called`, wins where both agree.
pub fn of_call(id: u8, called: Option<MemoryKind>) -> MemoryKind {
    let recorded = of_id(id);
    called
        .filter(|&called| of(called).id == recorded.id)
        .unwrap_or(recorded.kind)
}

impl MemKindRow {
    /// The `CUpti_ActivityMemoryKind` of the kind.
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
    fn cupti_numbers_begin_with_unknown() {
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
    fn kinds_have_a_number_in_exports() {
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
        let kind = |id, called| of_call(id, Some(called));
        assert_eq!(kind(2, MemoryKind::Async), MemoryKind::Async);
        assert_eq!(kind(4, MemoryKind::Async), MemoryKind::Managed);
    }
}
