//! Records as bytes, kind by kind and version by version.

use gpuprobe_wire::settings::cupti_kind as kind;
use gpuprobe_wire::{self as wire, Record, UNKNOWN_ID};
use proptest::prelude::*;

use super::*;

const V11_8: u32 = 18;
const V12_4: u32 = 22;
const V12_8: u32 = 26;
const V13_0: u32 = 130_001;
const V13_5: u32 = 130_500;

/// All ones: what CUPTI up to 13.0 writes for an id that there is not.
const NONE: u64 = 0xffff_ffff;

/// A record of `size` bytes with `fields`, each an offset, its bytes and its value.
fn bytes(kind: u32, size: usize, fields: &[(usize, usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; size];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    for &(offset, length, value) in fields {
        bytes[offset..offset + length].copy_from_slice(&value.to_le_bytes()[..length]);
    }
    bytes
}

fn at(version: u32) -> Version {
    Version::new(version).unwrap()
}

fn read_at(version: u32, bytes: &[u8]) -> Reduced {
    match read(at(version), bytes) {
        Outcome::Record(reduced) => reduced,
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls() {
    let fields = [
        (4, 4, 211),
        (8, 8, 1_000),
        (16, 8, 1_700),
        (24, 4, 4242),
        (28, 4, 4243),
        (32, 4, 17),
        (36, 4, 2),
    ];
    for (number, domain) in [
        (kind::DRIVER, 1),
        (kind::RUNTIME, 2),
        (kind::INTERNAL_LAUNCH_API, 3),
    ] {
        for version in [V11_8, V13_5] {
            let expected = wire::Api {
                start_ns: 1_000,
                end_ns: 1_700,
                domain,
                cbid: 211,
                pid: 4242,
                tid: 4243,
                correlation: 17,
                result: 2,
            };
            let reduced = read_at(version, &bytes(number, 40, &fields));
            assert_eq!(reduced.record, Record::Api(expected));
            assert_eq!(reduced.texts, [0, 0]);
        }
    }
}

const KERNEL: &[(usize, usize, u64)] = &[
    (4, 1, 3),
    (6, 2, 32),
    (16, 8, 5_000),
    (24, 8, 6_500),
    (32, 8, 6_600),
    (40, 4, 1),
    (44, 4, 2),
    (48, 4, 7),
    (52, 4, 10),
    (56, 4, 11),
    (60, 4, 12),
    (64, 4, 256),
    (68, 4, 2),
    (72, 4, 3),
    (76, 4, 1024),
    (80, 4, 2048),
    (84, 4, 64),
    (92, 4, 99),
    (96, 8, u64::MAX),
    (104, 8, 0x7f00_1234_5678),
    (120, 8, 4_000),
    (128, 8, 4_500),
    (136, 1, 1),
    (140, 4, 4096),
    (144, 8, 0x1_0000_0003),
    (152, 4, 1),
    (156, 4, 5),
    (168, 4, 9),
    (172, 4, 1),
    (176, 4, 2),
    (180, 4, 1),
    (184, 4, 1),
    (192, 8, 0x1_2345_6789),
];

fn expected_kernel() -> wire::Kernel {
    wire::Kernel {
        start_ns: 5_000,
        end_ns: 6_500,
        queued_ns: 4_000,
        submitted_ns: 4_500,
        completed_ns: 6_600,
        grid_id: -1,
        graph_node: 0x1_0000_0003,
        local_memory_total: 0x1_2345_6789,
        name: 0,
        device: 1,
        context: 2,
        stream: 7,
        correlation: 99,
        graph: 5,
        grid: [10, 11, 12],
        block: [256, 2, 3],
        cluster: [2, 1, 1],
        static_shared_memory: 1024,
        dynamic_shared_memory: 2048,
        shared_memory_executed: 4096,
        local_memory_per_thread: 64,
        channel: 9,
        channel_type: 1,
        registers_per_thread: 32,
        cache_config: 3,
        launch_type: 1,
        shared_memory_limit_config: 1,
        concurrent: 1,
        device_launched: 0,
        reserved: 0,
    }
}

#[test]
fn kernels() {
    // 11.8 and 12.1 say the same number, and are read alike.
    for (version, size) in [
        (V11_8, 200),
        (V11_8, 208),
        (V12_8, 208),
        (V13_0, 216),
        (V13_5, 248),
    ] {
        let reduced = read_at(version, &bytes(kind::CONCURRENT_KERNEL, size, KERNEL));
        assert_eq!(
            reduced.record,
            Record::Kernel(expected_kernel()),
            "{version}"
        );
        assert_eq!(reduced.texts, [0x7f00_1234_5678, 0]);
    }
    let serial = read_at(V12_8, &bytes(kind::KERNEL, 208, KERNEL));
    let expected = wire::Kernel {
        concurrent: 0,
        ..expected_kernel()
    };
    assert_eq!(serial.record, Record::Kernel(expected));
}

#[test]
fn kernels_that_kernels_launch() {
    for (version, size, device_launched) in [(V12_8, 248, 0), (V13_0, 216, 1), (V13_5, 248, 1)] {
        let mut fields = KERNEL.to_vec();
        if size > 208 {
            fields.push((208, 1, 1));
        }
        let reduced = read_at(version, &bytes(kind::CONCURRENT_KERNEL, size, &fields));
        let expected = wire::Kernel {
            device_launched,
            ..expected_kernel()
        };
        assert_eq!(reduced.record, Record::Kernel(expected), "{version}");
    }
}

#[test]
fn the_name_gets_its_place() {
    let reduced = read_at(V12_8, &bytes(kind::CONCURRENT_KERNEL, 208, KERNEL));
    let expected = wire::Kernel {
        name: 4,
        ..expected_kernel()
    };
    assert_eq!(reduced.named([4, 9]), Record::Kernel(expected));
}

#[test]
fn copies() {
    let fields = [
        (4, 1, 1),
        (5, 1, 2),
        (6, 1, 3),
        (7, 1, 1),
        (8, 8, 1 << 40),
        (16, 8, 100),
        (24, 8, 300),
        (32, 4, 1),
        (36, 4, 2),
        (40, 4, 13),
        (44, 4, 77),
        (48, 4, 78),
        (64, 8, 0x2_0000_0001),
        (72, 4, NONE),
        (76, 4, 4),
        (80, 4, 2),
    ];
    for (version, size, copies) in [(V11_8, 88, 1), (V12_8, 96, 8), (V13_5, 112, 8)] {
        let mut fields = fields.to_vec();
        if size > 88 {
            fields.push((88, 8, 8));
        }
        let expected = wire::Memcpy {
            start_ns: 100,
            end_ns: 300,
            size_bytes: 1 << 40,
            graph_node: 0x2_0000_0001,
            copies,
            copy_kind: 1,
            source_kind: 2,
            destination_kind: 3,
            flags: 1,
            peer: 0,
            device: 1,
            context: 2,
            stream: 13,
            correlation: 77,
            runtime_correlation: 78,
            graph: UNKNOWN_ID,
            source_device: UNKNOWN_ID,
            source_context: UNKNOWN_ID,
            destination_device: UNKNOWN_ID,
            destination_context: UNKNOWN_ID,
            channel: 4,
            channel_type: 2,
        };
        let reduced = read_at(version, &bytes(kind::MEMCPY, size, &fields));
        assert_eq!(reduced.record, Record::Memcpy(expected), "{version}");
    }
}

#[test]
fn copies_between_devices() {
    let fields = [
        (4, 1, 10),
        (5, 1, 3),
        (6, 1, 3),
        (8, 8, 4096),
        (16, 8, 100),
        (24, 8, 300),
        (32, 4, 0),
        (36, 4, 1),
        (40, 4, 7),
        (44, 4, 2),
        (48, 4, 3),
        (52, 4, 4),
        (56, 4, 5),
        (60, 4, 77),
        (72, 8, 6),
        (80, 4, 8),
        (84, 4, 9),
        (88, 4, 2),
    ];
    let expected = wire::Memcpy {
        start_ns: 100,
        end_ns: 300,
        size_bytes: 4096,
        graph_node: 6,
        copies: 1,
        copy_kind: 10,
        source_kind: 3,
        destination_kind: 3,
        flags: 0,
        peer: 1,
        device: 0,
        context: 1,
        stream: 7,
        correlation: 77,
        runtime_correlation: 0,
        graph: 8,
        source_device: 2,
        source_context: 3,
        destination_device: 4,
        destination_context: 5,
        channel: 9,
        channel_type: 2,
    };
    let reduced = read_at(V13_5, &bytes(kind::MEMCPY2, 96, &fields));
    assert_eq!(reduced.record, Record::Memcpy(expected));
}

#[test]
fn sets() {
    let fields = [
        (4, 4, 0xab),
        (8, 8, 512),
        (16, 8, 100),
        (24, 8, 300),
        (32, 4, 1),
        (36, 4, 2),
        (40, 4, 7),
        (44, 4, 21),
        (48, 2, 1),
        (50, 2, 3),
        (64, 8, 5),
        (72, 4, 6),
        (76, 4, 8),
        (80, 4, 2),
    ];
    for (version, size) in [(V11_8, 88), (V13_5, 104)] {
        let expected = wire::Memset {
            start_ns: 100,
            end_ns: 300,
            size_bytes: 512,
            graph_node: 5,
            value: 0xab,
            device: 1,
            context: 2,
            stream: 7,
            correlation: 21,
            flags: 1,
            memory_kind: 3,
            graph: 6,
            channel: 8,
            channel_type: 2,
            reserved: 0,
        };
        let reduced = read_at(version, &bytes(kind::MEMSET, size, &fields));
        assert_eq!(reduced.record, Record::Memset(expected));
    }
}

#[test]
fn memory() {
    let fields = [
        (4, 4, 2),
        (8, 4, 3),
        (12, 4, 55),
        (16, 8, 0x7f00_0000_0000),
        (24, 8, 1 << 33),
        (32, 8, 900),
        (40, 8, 0x40_1234),
        (48, 4, 4242),
        (52, 4, 1),
        (56, 4, 2),
        (60, 4, NONE),
        (64, 8, 0x1000),
        (72, 4, 1),
        (80, 4, 1),
        (88, 8, 0x2000),
        (96, 8, 0x3000),
        (104, 8, 0x4000),
        (112, 8, 0x5000),
    ];
    for (version, size, source) in [(V12_4, 120, 0), (V12_8, 128, 0x6000)] {
        let mut fields = fields.to_vec();
        if size > 120 {
            fields.push((120, 8, source));
        }
        let expected = wire::Memory {
            time_ns: 900,
            address: 0x7f00_0000_0000,
            size_bytes: 1 << 33,
            pc: 0x40_1234,
            pool_address: 0x2000,
            pool_size: 0x4000,
            pool_release_threshold: 0x3000,
            pool_utilized: 0x5000,
            operation: 2,
            memory_kind: 3,
            pid: 4242,
            device: 1,
            context: 2,
            stream: UNKNOWN_ID,
            correlation: 55,
            name: 0,
            asynchronous: 1,
            pool_type: 1,
            source: 0,
            reserved: 0,
        };
        let reduced = read_at(version, &bytes(kind::MEMORY2, size, &fields));
        assert_eq!(reduced.record, Record::Memory(expected), "{version}");
        assert_eq!(reduced.texts, [0x1000, source]);
        let named = reduced.named([7, 8]);
        assert!(matches!(named, Record::Memory(m) if (m.name, m.source) == (7, 8)));
    }
}

#[test]
fn memory_pools() {
    let fields = [
        (4, 4, 3),
        (8, 4, 1),
        (12, 4, 55),
        (16, 4, 4242),
        (20, 4, 1),
        (24, 8, 10),
        (32, 8, 20),
        (40, 8, 30),
        (48, 8, 40),
        (56, 8, 50),
        (64, 8, 60),
    ];
    for (version, size, managed) in [(V12_8, 72, 0), (V13_0, 80, 1)] {
        let mut fields = fields.to_vec();
        if size > 72 {
            fields.push((72, 1, 1));
        }
        let expected = wire::MemoryPool {
            time_ns: 50,
            address: 20,
            size_bytes: 30,
            utilized_bytes: 60,
            release_threshold: 40,
            min_bytes_to_keep: 10,
            operation: 3,
            pool_type: 1,
            pid: 4242,
            device: 1,
            correlation: 55,
            managed,
        };
        let reduced = read_at(version, &bytes(kind::MEMORY_POOL, size, &fields));
        assert_eq!(reduced.record, Record::MemoryPool(expected), "{version}");
    }
}

#[test]
fn waits() {
    let fields = [
        (4, 4, 4),
        (8, 8, 100),
        (16, 8, 900),
        (24, 4, 55),
        (28, 4, 2),
        (32, 4, NONE),
        (36, 4, NONE),
    ];
    for (version, size, result) in [(V12_4, 40, 0), (V12_8, 56, 7)] {
        let mut fields = fields.to_vec();
        if size > 40 {
            fields.push((48, 4, result));
        }
        let expected = wire::Sync {
            start_ns: 100,
            end_ns: 900,
            sync_type: 4,
            context: 2,
            stream: UNKNOWN_ID,
            correlation: 55,
            event: UNKNOWN_ID,
            result: u32::try_from(result).unwrap(),
        };
        let reduced = read_at(version, &bytes(kind::SYNCHRONIZATION, size, &fields));
        assert_eq!(reduced.record, Record::Sync(expected), "{version}");
    }
}

#[test]
fn graphs() {
    let fields = [
        (4, 4, 55),
        (8, 8, 100),
        (16, 8, 900),
        (24, 4, 1),
        (28, 4, 3),
        (32, 4, 2),
        (36, 4, 7),
    ];
    for (version, size, end) in [(V11_8, 48, (1, 2)), (V12_4, 56, (5, 6))] {
        let mut fields = fields.to_vec();
        if size > 48 {
            fields.extend([(48, 4, 5), (52, 4, 6)]);
        }
        let expected = wire::GraphTrace {
            start_ns: 100,
            end_ns: 900,
            device: 1,
            context: 2,
            stream: 7,
            correlation: 55,
            graph: 3,
            end_device: end.0,
            end_context: end.1,
            reserved: 0,
        };
        let reduced = read_at(version, &bytes(kind::GRAPH_TRACE, size, &fields));
        assert_eq!(reduced.record, Record::GraphTrace(expected), "{version}");
    }
}

#[test]
fn overheads() {
    let fields = [
        (4, 4, 65536),
        (8, 4, 2),
        (12, 4, 4242),
        (16, 4, 4243),
        (20, 4, 99),
        (24, 8, 100),
        (32, 8, 900),
    ];
    for (version, size, correlation) in [(V11_8, 40, 0), (V12_4, 56, 12)] {
        let mut fields = fields.to_vec();
        if size > 40 {
            fields.push((40, 4, correlation));
        }
        let expected = wire::Overhead {
            start_ns: 100,
            end_ns: 900,
            overhead_kind: 65536,
            // A thread has no stream.
            object: wire::Object {
                kind: 2,
                a: 4242,
                b: 4243,
                c: 0,
            },
            correlation: u32::try_from(correlation).unwrap(),
        };
        let reduced = read_at(version, &bytes(kind::OVERHEAD, size, &fields));
        assert_eq!(reduced.record, Record::Overhead(expected), "{version}");
    }
}

#[test]
fn streams_and_contexts() {
    let fields = [
        (4, 4, 2),
        (8, 4, 13),
        (12, 4, u64::from((-5i32).cast_unsigned())),
        (16, 4, 2),
        (20, 4, 55),
    ];
    let expected = wire::Stream {
        context: 2,
        stream: 13,
        priority: -5,
        flag: 2,
        correlation: 55,
        reserved: 0,
    };
    let reduced = read_at(V11_8, &bytes(kind::STREAM, 24, &fields));
    assert_eq!(reduced.record, Record::Stream(expected));

    let fields = [(4, 4, 2), (8, 4, 1), (12, 2, 1), (14, 2, 7)];
    for (version, size) in [(V11_8, 16), (V12_4, 24), (V12_8, 32), (V13_5, 40)] {
        for green in [false, true] {
            let has_parent = green && size > 16;
            let mut fields = fields.to_vec();
            if size > 16 {
                fields.extend([(16, 4, 3), (20, 1, green.into())]);
            }
            let expected = wire::Context {
                context: 2,
                device: 1,
                compute_api: 1,
                null_stream: 7,
                parent_context: if has_parent { 3 } else { UNKNOWN_ID },
            };
            let reduced = read_at(version, &bytes(kind::CONTEXT, size, &fields));
            assert_eq!(
                reduced.record,
                Record::Context(expected),
                "{version} {green}"
            );
        }
    }
}

#[test]
fn devices() {
    let fields = [
        (8, 8, 4_814_000_000),
        (16, 8, 150_754_820_096),
        (24, 4, 65_536),
        (28, 4, 62_914_560),
        (32, 4, 32),
        (36, 4, 1_980_000),
        (40, 4, 3),
        (44, 4, 132),
        (52, 4, 64),
        (56, 4, 31),
        (60, 4, 233_472),
        (64, 4, 65_537),
        (68, 4, 65_538),
        (72, 4, 49_152),
        (76, 4, 1024),
        (80, 4, 1021),
        (84, 4, 1022),
        (88, 4, 64),
        (92, 4, 2_147_483_647),
        (96, 4, 65_535),
        (100, 4, 65_534),
        (104, 4, 9),
        (108, 4, 1),
        (112, 4, 2),
        (116, 4, 1),
        (120, 8, 0x0807_0605_0403_0201),
        (128, 8, 0x100f_0e0d_0c0b_0a09),
        (136, 8, 0x7f00_0000_1000),
    ];
    for (version, size) in [(V11_8, 176), (V12_4, 184), (V13_5, 192)] {
        let expected = wire::Device {
            memory_bandwidth: 4_814_000_000,
            memory_bytes: 150_754_820_096,
            uuid: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
            name: 0,
            device: 2,
            clock_khz: 1_980_000,
            multiprocessors: 132,
            capability_major: 9,
            capability_minor: 1,
            l2_cache_bytes: 62_914_560,
            constant_memory_bytes: 65_536,
            threads_per_warp: 32,
            copy_engines: 3,
            max_warps_per_multiprocessor: 64,
            max_blocks_per_multiprocessor: 31,
            max_shared_memory_per_multiprocessor: 233_472,
            max_registers_per_multiprocessor: 65_537,
            max_registers_per_block: 65_538,
            max_shared_memory_per_block: 49_152,
            max_threads_per_block: 1024,
            max_block_dim: [1021, 1022, 64],
            max_grid_dim: [2_147_483_647, 65_535, 65_534],
            ecc_enabled: 1,
        };
        let reduced = read_at(version, &bytes(kind::DEVICE, size, &fields));
        assert_eq!(reduced.record, Record::Device(expected), "{version}");
        assert_eq!(reduced.texts, [0x7f00_0000_1000, 0]);
        assert!(matches!(reduced.named([3, 0]), Record::Device(d) if d.name == 3));
    }
}

#[test]
fn names_and_markers() {
    let fields = [
        (4, 4, 5),
        (8, 4, 1),
        (12, 4, 2),
        (16, 4, 13),
        (24, 8, 0x1000),
    ];
    let stream = wire::Object {
        kind: 5,
        a: 1,
        b: 2,
        c: 13,
    };
    let reduced = read_at(V11_8, &bytes(kind::NAME, 32, &fields));
    let expected = wire::Name {
        object: stream,
        name: 6,
        reserved: 0,
    };
    assert_eq!(reduced.texts, [0x1000, 0]);
    assert_eq!(reduced.named([6, 0]), Record::Name(expected));

    let fields = [
        (4, 4, 4),
        (8, 8, 900),
        (16, 4, 12),
        (20, 4, 3),
        (24, 4, 1),
        (28, 4, 88),
        (32, 4, 99),
        (40, 8, 0x1000),
        (48, 8, 0x2000),
    ];
    let reduced = read_at(V13_5, &bytes(kind::MARKER, 56, &fields));
    let expected = wire::Marker {
        time_ns: 900,
        flags: 4,
        id: 12,
        // A device has neither thread nor stream.
        object: wire::Object {
            kind: 3,
            a: 1,
            b: 0,
            c: 0,
        },
        name: 6,
        domain: 7,
    };
    assert_eq!(reduced.texts, [0x1000, 0x2000]);
    assert_eq!(reduced.named([6, 7]), Record::Marker(expected));
}

#[test]
fn external_correlations() {
    let fields = [(4, 4, 3), (8, 8, 1 << 40), (16, 4, 55)];
    let expected = wire::ExternalCorrelation {
        external_id: 1 << 40,
        external_kind: 3,
        correlation: 55,
    };
    let reduced = read_at(V11_8, &bytes(kind::EXTERNAL_CORRELATION, 24, &fields));
    assert_eq!(reduced.record, Record::ExternalCorrelation(expected));
}

#[test]
fn ids_that_there_are_not_are_unknown_whatever_the_version_calls_them() {
    let stream_of = |version, size, id| {
        let record = bytes(kind::MEMSET, size, &[(40, 4, id)]);
        match read_at(version, &record).record {
            Record::Memset(memset) => memset.stream,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(stream_of(V13_5, 104, 0), UNKNOWN_ID);
    assert_eq!(stream_of(V13_5, 104, NONE), UNKNOWN_ID);
    assert_eq!(stream_of(V12_8, 88, NONE), UNKNOWN_ID);
    assert_eq!(stream_of(V12_8, 88, 0), 0);
    assert_eq!(stream_of(V13_5, 104, 7), 7);
}

/// Kinds with a place in a batch, and their sizes at each of five versions.
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
fn a_record_that_is_too_short_is_none() {
    for &(number, sizes) in SIZES {
        for (version, size) in [V11_8, V12_4, V12_8, V13_0, V13_5].into_iter().zip(sizes) {
            let whole = bytes(number, size, &[]);
            assert!(matches!(read(at(version), &whole), Outcome::Record(_)));
            for short in 0..size {
                let outcome = read(at(version), &whole[..short]);
                assert_eq!(outcome, Outcome::Short, "{number} {version} {short}");
            }
        }
    }
}

#[test]
fn other_kinds_are_unknown() {
    for number in 0..=100 {
        let is_known = SIZES.iter().any(|&(known, _)| known == number);
        let outcome = read(at(V13_5), &bytes(number, 512, &[]));
        assert_eq!(outcome == Outcome::Unknown(number), !is_known, "{number}");
    }
    assert_eq!(read(at(V12_8), &[0xff; 8]), Outcome::Unknown(u32::MAX));
}

proptest! {
    /// Whatever bytes there are: no panic, and a record only if there are enough of them.
    #[test]
    fn any_bytes_can_be_read(
        number in prop_oneof![0u32..64, any::<u32>()],
        version in prop_oneof![18u32..30, 130_000u32..130_700, any::<u32>()],
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut record = number.to_le_bytes().to_vec();
        record.extend(&rest);
        if let Some(version) = Version::new(version) {
            let outcome = read(version, &record);
            let size = SIZES.iter().find(|&&(known, _)| known == number);
            let least = size.map(|(_, sizes)| sizes[0]);
            match outcome {
                Outcome::Record(_) => prop_assert!(least.is_some_and(|least| record.len() >= least)),
                Outcome::Unknown(unknown) => {
                    prop_assert_eq!(unknown, number);
                    prop_assert!(least.is_none());
                }
                Outcome::Short => prop_assert!(least.is_some()),
            }
        }
    }

    /// What follows a record has no part in it.
    #[test]
    fn what_follows_does_not_matter(
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
