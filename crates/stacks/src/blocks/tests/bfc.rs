use super::{Heap, Random};
use crate::blocks::{Unread, bfc};
use gpuprobe_model::blocks::{DeviceBlocks, FoundBlock, FoundSegment};
use gpuprobe_model::event::Tensor;

const NONE: u64 = u64::MAX;

/// Words at which a chunk has its fields: size, requested size, id, address, previous and next one, bin; and its words.
type Fields = ([usize; 7], usize);
const OF_XLA: Fields = ([0, 1, 2, 3, 4, 5, 6], 13);

/// Regions: sizes of chunks, and whether they are in use.
const REGIONS: [&[(u64, bool)]; 3] = [
    &[(256, true), (1280, false), (4096, true), (1 << 20, false)],
    &[(1 << 20, false)],
    &[(512, true), (512, true), (3072, false)],
];
/// In the object: its name, the vector of chunks, and the number of allocations.
const NAME: u64 = 0x3e8;
const VECTOR: u64 = 0x488;
const COUNTERS: u64 = 0x4b8;

struct Scene {
    heap: Heap,
    this: u64,
    chunks: u64,
    event: Tensor,
    expected: DeviceBlocks,
}

fn scene((fields, width): Fields, name: &str) -> Scene {
    let mut heap = Heap::default();
    let text = heap.new_object(16);
    let this = heap.new_object(600);
    // Chunks are anywhere in the vector, with elements between that are none now.
    let count = 16;
    let places = [7, 2, 11, 0, 14, 3, 5, 6, 9, 4, 12, 1, 8, 10, 13, 15];
    let chunks = heap.new_object((count + 4) * width);
    let mut expected = DeviceBlocks {
        device: 3,
        ..DeviceBlocks::default()
    };
    let set = |heap: &mut Heap, place: usize, values: [u64; 7]| {
        for (at, value) in fields.into_iter().zip(values) {
            heap.set(chunks + ((place * width + at) * 8) as u64, &[value]);
        }
    };
    let mut next_place = places.into_iter();
    let mut address = 0x7f00_0000_0040;
    for (number, region) in REGIONS.into_iter().enumerate() {
        expected.segments.push(FoundSegment {
            address,
            bytes: region.iter().map(|(bytes, _)| bytes).sum(),
            stream: 0,
            pool: (0, 0),
            is_expandable: false,
        });
        let places: Vec<_> = next_place.by_ref().take(region.len()).collect();
        for (index, &(bytes, is_used)) in region.iter().enumerate() {
            let at = |index: Option<usize>| index.and_then(|at| places.get(at));
            let link = |index| at(index).map_or(NONE, |&place| place as u64);
            let [id, bin] = if is_used {
                [(number * 10 + index + 1) as u64, 0xffff_ffff]
            } else {
                [NONE, 2]
            };
            let requested = bytes - index as u64;
            let links = [link(index.checked_sub(1)), link(Some(index + 1))];
            set(
                &mut heap,
                places[index],
                [bytes, requested, id, address, links[0], links[1], bin],
            );
            if is_used {
                expected.allocated_bytes += bytes;
                expected.blocks.push(FoundBlock {
                    address,
                    bytes,
                    requested_bytes: requested,
                    is_pending: false,
                    ..FoundBlock::default()
                });
            }
            address += bytes;
        }
        address += 1 << 30;
    }
    // The others have what they had as chunks.
    let others: Vec<_> = next_place.collect();
    for (index, &place) in others.iter().enumerate() {
        let next = others.get(index + 1).map_or(NONE, |&place| place as u64);
        set(
            &mut heap,
            place,
            [1 << 16, 77, NONE, 0x7f00_0000_0140, NONE, next, 0xffff_ffff],
        );
    }
    expected.reserved_bytes = expected.segments.iter().map(|segment| segment.bytes).sum();
    expected.peak_reserved_bytes = expected.reserved_bytes;
    expected.peak_allocated_bytes = expected.allocated_bytes + 8192;

    let mut bytes = [0; 64];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    let words: Vec<u64> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|b| u64::from_le_bytes(*b))
        .collect();
    let (string, length) = (this + NAME, name.len() as u64);
    if name.len() < 16 {
        heap.set(string, &[string + 16, length, words[0], words[1]]);
    } else {
        heap.set(text, &words);
        heap.set(string, &[text, length, length + 4, 0]);
    }
    let end = chunks + (count * width * 8) as u64;
    let room = end + (width * 8) as u64;
    heap.set(this + VECTOR, &[chunks, end, room, others[0] as u64, 0, 78]);
    let counters = [
        77,
        expected.allocated_bytes,
        expected.peak_allocated_bytes,
        4096,
    ];
    heap.set(this + COUNTERS, &counters);
    // Others that look like vectors.
    heap.set(this + 0x200, &[chunks, chunks + 96 * 8, chunks + 96 * 8]);
    heap.set(this + 0x300, &[0x10, 0x100_0000, 0x100_0000]);
    let known = expected.blocks[1];
    let event = Tensor {
        row: 0,
        pid: 7,
        tid: 7,
        time_ns: 0,
        address: known.address,
        bytes: known.bytes,
        is_free: false,
        allocated_bytes: this,
        reserved_bytes: known.requested_bytes,
        device: None,
        stack: 0,
    };
    Scene {
        heap,
        this,
        chunks,
        event,
        expected,
    }
}

#[test]
fn chunks_are_found_wherever_their_fields_are() {
    let mut random = Random(7);
    for round in 0..50 {
        let mut fields = OF_XLA;
        if round > 0 {
            fields.1 = 8 + random.below(10);
            let mut places: Vec<_> = (0..fields.1).collect();
            fields.0 = fields.0.map(|_| places.remove(random.below(places.len())));
        }
        for name in ["GPU_3_bfc", "GPU_collectivememory_3_bfc"] {
            let scene = scene(fields, name);
            let found = bfc::read(&scene.heap, &scene.event);
            assert_eq!(found, Ok(Some(scene.expected)), "{fields:?} {name}");
        }
    }
}

#[test]
fn only_allocators_of_gpus_are_taken() {
    for name in [
        "gpu_host_bfc",
        "xla_gpu_host_bfc",
        "GPU_bfc",
        "GPU_70000_bfc",
        "GPU_0_bfcs",
    ] {
        let scene = scene(OF_XLA, name);
        assert_eq!(bfc::read(&scene.heap, &scene.event), Ok(None), "{name}");
    }
    let mut scene = scene(OF_XLA, "GPU_3_bfc");
    scene.heap.set(scene.this + NAME, &[0]);
    let found = bfc::read(&scene.heap, &scene.event);
    assert_eq!(found, Err(Unread::Unlike("name")));
}

#[test]
fn chunks_that_do_not_agree_with_counters_or_events_are_not_taken() {
    let scene = scene(OF_XLA, "GPU_3_bfc");
    let unlike = Err(Unread::Unlike("chunks"));
    // Fewer allocations than chunks, other sums, a lower peak, a larger chunk.
    for (at, value) in [(0, 3), (1, 1), (2, 100), (3, 100), (3, 1 << 40)] {
        let mut heap = scene.heap.clone();
        heap.set(scene.this + COUNTERS + at * 8, &[value]);
        assert_eq!(bfc::read(&heap, &scene.event), unlike, "{value} at {at}");
    }
    let event = scene.event;
    let is_taken = |event| bfc::read(&scene.heap, &event) == Ok(Some(scene.expected.clone()));
    let free = Tensor {
        is_free: true,
        ..event
    };
    assert!(is_taken(free));
    // Somewhere in a region.
    assert!(is_taken(Tensor {
        address: 0x7f00_0000_0140,
        ..free
    }));
    for other in [
        Tensor {
            address: 0x7f00_0000_0000,
            ..free
        },
        Tensor {
            address: 0x7f00_0000_0140,
            ..event
        },
        Tensor {
            bytes: 512,
            ..event
        },
    ] {
        assert_eq!(bfc::read(&scene.heap, &other), unlike, "{other:?}");
    }
    let unknown = Tensor {
        allocated_bytes: 0,
        ..event
    };
    assert_eq!(bfc::read(&scene.heap, &unknown), Err(Unread::Empty));
}

#[test]
fn an_allocator_that_is_used_meanwhile_is_not_read() {
    let scene = scene(OF_XLA, "GPU_3_bfc");
    bfc::read(&scene.heap, &scene.event).unwrap();
    let reads = scene.heap.reads.get();
    // The last one is of the name.
    for at in 1..reads - 1 {
        let heap = Heap {
            change: Some((at, scene.this + COUNTERS)),
            reads: std::cell::Cell::new(0),
            ..scene.heap.clone()
        };
        assert_eq!(bfc::read(&heap, &scene.event), Err(Unread::Changed), "{at}");
    }
}

#[test]
fn whatever_the_memory_has_no_chunk_is_wrong() {
    let scene = scene(OF_XLA, "GPU_collectivememory_3_bfc");
    // Of free chunks, some is nowhere else: where a region without any other begins, and where one ends.
    let places = |found: &DeviceBlocks| -> Vec<_> {
        let blocks = found.blocks.iter();
        blocks.map(|block| (block.address, block.bytes)).collect()
    };
    let expected = places(&scene.expected);
    let values = [
        0,
        1,
        NONE,
        7,
        scene.this,
        scene.chunks,
        0x7f00_0000_0040,
        NONE - 7,
    ];
    let (mut tries, mut read) = (0, 0);
    for (&base, words) in &scene.heap.objects {
        let used = (base..)
            .step_by(8)
            .zip(words)
            .filter(|(_, word)| **word != 0);
        for (at, _) in used {
            for value in values {
                let mut heap = scene.heap.clone();
                heap.set(at, &[value]);
                tries += 1;
                if let Ok(Some(found)) = bfc::read(&heap, &scene.event) {
                    assert_eq!(places(&found), expected, "{value:#x} at {at:#x}");
                    read += 1;
                }
            }
        }
    }
    assert!(0 < read && read < tries);
}
