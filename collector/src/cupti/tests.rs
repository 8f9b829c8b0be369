//! Records as bytes, by kind and version.

use gpuprobe_wire::settings::cupti_kind as kind;
use gpuprobe_wire::{self as wire, UNKNOWN_ID, WireRecord};
use proptest::prelude::*;

use super::*;

mod objects;
mod work;

const V11_8: u32 = 18;
const V12_4: u32 = 22;
const V12_8: u32 = 26;
const V13_0: u32 = 130_001;
const V13_5: u32 = 130_500;

/// All ones: CUPTI's value up to 13.0 for an id that does not exist.
const NONE: u64 = 0xffff_ffff;

/// A record of `size` bytes with `fields` (offset, size in bytes, value).
fn bytes(kind: u32, size: usize, fields: &[(usize, usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; size];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    for &(offset, length, value) in fields {
        bytes[offset..offset + length].copy_from_slice(&value.to_le_bytes()[..length]);
    }
    bytes
}

fn at(version: u32) -> CuptiVersion {
    CuptiVersion::new(version).unwrap()
}

fn read_at(version: u32, bytes: &[u8]) -> Reduced {
    match read(at(version), bytes) {
        ReadResult::Record(reduced) => reduced,
        other => panic!("{other:?}"),
    }
}

#[test]
fn missing_ids_are_unknown_in_all_versions() {
    let stream_of = |version, size, id| {
        let record = bytes(kind::MEMSET, size, &[(40, 4, id)]);
        match read_at(version, &record).record {
            WireRecord::Memset(memset) => memset.stream,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(stream_of(V13_5, 104, 0), UNKNOWN_ID);
    assert_eq!(stream_of(V13_5, 104, NONE), UNKNOWN_ID);
    assert_eq!(stream_of(V12_8, 88, NONE), UNKNOWN_ID);
    assert_eq!(stream_of(V12_8, 88, 0), 0);
    assert_eq!(stream_of(V13_5, 104, 7), 7);
}

/// Record kinds with their sizes at each of five versions.
const SIZES: &[(u32, [usize; 5])] = &[
    (kind::MEMCPY, [88, 88, 96, 96, 112]),
    (kind::MEMSET, [88, 88, 88, 88, 104]),
    (kind::KERNEL, [200, 200, 200, 216, 248]),
    (kind::DRIVER, [40; 5]),
    (kind::RUNTIME, [40; 5]),
    (kind::DEVICE, [176, 184, 184, 184, 192]),
    (kind::CONTEXT, [16, 24, 32, 32, 40]),
    (kind::CONCURRENT_KERNEL, [200, 200, 200, 216, 248]),
    (kind::NAME, [32; 5]),
    (kind::MARKER, [56; 5]),
    (kind::OVERHEAD, [40, 56, 56, 56, 56]),
    (kind::MEMCPY2, [96; 5]),
    (kind::STREAM, [24; 5]),
    (kind::SYNCHRONIZATION, [40, 40, 56, 56, 56]),
    (kind::EXTERNAL_CORRELATION, [24; 5]),
    (kind::INTERNAL_LAUNCH_API, [40; 5]),
    (kind::MEMORY2, [120, 120, 128, 128, 128]),
    (kind::MEMORY_POOL, [72, 72, 72, 80, 80]),
    (kind::GRAPH_TRACE, [48, 56, 56, 56, 56]),
];

#[test]
fn short_records_are_refused() {
    for &(number, sizes) in SIZES {
        for (version, size) in [V11_8, V12_4, V12_8, V13_0, V13_5].into_iter().zip(sizes) {
            let whole = bytes(number, size, &[]);
            assert!(matches!(read(at(version), &whole), ReadResult::Record(_)));
            for short in 0..size {
                let outcome = read(at(version), &whole[..short]);
                assert_eq!(outcome, ReadResult::Short, "{number} {version} {short}");
            }
        }
    }
}

#[test]
fn other_kinds_are_unknown() {
    for number in 0..=100 {
        let is_known = SIZES.iter().any(|&(known, _)| known == number);
        let outcome = read(at(V13_5), &bytes(number, 512, &[]));
        assert_eq!(
            outcome == ReadResult::Unknown(number),
            !is_known,
            "{number}"
        );
    }
    assert_eq!(read(at(V12_8), &[0xff; 8]), ReadResult::Unknown(u32::MAX));
}

proptest! {
    /// Any bytes: no panic, and a record only if there are enough of them.
    #[test]
    fn any_bytes_can_be_read(
        number in prop_oneof![0u32..64, any::<u32>()],
        version in prop_oneof![18u32..30, 130_000u32..130_700, any::<u32>()],
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut record = number.to_le_bytes().to_vec();
        record.extend(&rest);
        if let Some(version) = CuptiVersion::new(version) {
            let outcome = read(version, &record);
            let size = SIZES.iter().find(|&&(known, _)| known == number);
            let least = size.map(|(_, sizes)| sizes[0]);
            match outcome {
                ReadResult::Record(_) => prop_assert!(least.is_some_and(|least| record.len() >= least)),
                ReadResult::Unknown(unknown) => {
                    prop_assert_eq!(unknown, number);
                    prop_assert!(least.is_none());
                }
                ReadResult::Short => prop_assert!(least.is_some()),
            }
        }
    }

    /// Bytes after a record are ignored.
    #[test]
    fn bytes_after_a_record_are_ignored(
        rest in prop::collection::vec(any::<u8>(), 248..248usize + 1),
        behind in prop::collection::vec(any::<u8>(), 0..64),
        kind in 0..SIZES.len(),
    ) {
        let (number, sizes) = SIZES[kind];
        let mut record = number.to_le_bytes().to_vec();
        record.extend(&rest[..sizes[4] - 4]);
        let alone = read(at(V13_5), &record);
        record.extend(&behind);
        prop_assert_eq!(alone, read(at(V13_5), &record));
    }
}
