//! A recording has every tensor.

use std::collections::BTreeMap;
use std::path::Path;

use super::truth::Device;
use crate::recording::open;

/// A block's columns in a recording.
#[derive(Debug, PartialEq, Eq)]
struct BlockRow {
    bytes: u64,
    requested: Option<u64>,
    stream: Option<u64>,
    has_stack: bool,
}

/// The blocks from the first row to the last, and sums.
#[derive(Debug, Default)]
struct Recorded {
    mallocs: u64,
    frees: u64,
    /// Allocated and reserved bytes of the last row.
    sums: (u64, u64),
    live: BTreeMap<u64, BlockRow>,
}

/// The rows of each device, in order.
fn recorded(file: &Path) -> BTreeMap<u64, Recorded> {
    let file = open(file);
    let mut statement = file
        .prepare(
            "SELECT device, address, bytes, isFree, allocated, reserved, requested, stream, chain, t0 \
             FROM GPUPROBE_TENSORS ORDER BY rowid",
        )
        .unwrap();
    let mut rows = statement.query([]).unwrap();
    let mut devices: BTreeMap<u64, Recorded> = BTreeMap::new();
    let mut last_ns = 0;
    while let Some(row) = rows.next().unwrap() {
        let number = |n: usize| {
            row.get::<_, Option<i64>>(n)
                .unwrap()
                .map(i64::cast_unsigned)
        };
        let here = devices.entry(number(0).unwrap()).or_default();
        let (address, bytes) = (number(1).unwrap(), number(2).unwrap());
        here.sums = (number(4).unwrap(), number(5).unwrap());
        if number(3) == Some(1) {
            here.frees += 1;
            let freed = here.live.remove(&address).expect("it was handed out");
            assert_eq!(freed.bytes, bytes, "at {address:#x}");
        } else {
            here.mallocs += 1;
            let new = BlockRow {
                bytes,
                requested: number(6),
                stream: number(7),
                has_stack: number(8).is_some(),
            };
            let old = here.live.insert(address, new);
            assert!(old.is_none(), "{address:#x} is handed out twice");
        }
        let now_ns = number(9).unwrap();
        assert!(last_ns <= now_ns, "{now_ns} comes after {last_ns}");
        last_ns = now_ns;
    }
    devices
}

/// Equal for every live block.
fn check(found: &Recorded, truth: &Device) {
    assert_eq!((found.mallocs, found.frees), (truth.mallocs, truth.frees));
    assert_eq!(found.sums, (truth.allocated, truth.reserved));
    assert_eq!(found.live.len(), truth.live().count());
    for (segment, block) in truth
        .segments
        .iter()
        .flat_map(|s| s.live().map(move |b| (s, b)))
    {
        let expected = BlockRow {
            bytes: block.bytes,
            requested: Some(block.requested),
            stream: Some(segment.stream),
            has_stack: true,
        };
        assert_eq!(
            found.live.get(&block.address),
            Some(&expected),
            "{:#x}",
            block.address
        );
    }
}

/// Asserts that a recording has every tensor of these devices.
pub(super) fn assert_recorded(file: &Path, devices: &[Device]) {
    let recorded = recorded(file);
    let numbers: Vec<_> = devices.iter().map(|device| device.number).collect();
    assert_eq!(recorded.keys().copied().collect::<Vec<_>>(), numbers);
    for (found, truth) in recorded.values().zip(devices) {
        check(found, truth);
    }
}
