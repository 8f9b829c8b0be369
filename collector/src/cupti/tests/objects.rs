//! Memory, contexts, devices, names, overheads.

use super::*;

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
        assert_eq!(reduced.record, WireRecord::Memory(expected), "{version}");
        assert_eq!(reduced.texts, [0x1000, source]);
        let named = reduced.named([7, 8]);
        assert!(matches!(named, WireRecord::Memory(m) if (m.name, m.source) == (7, 8)));
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
        assert_eq!(
            reduced.record,
            WireRecord::MemoryPool(expected),
            "{version}"
        );
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
        assert_eq!(reduced.record, WireRecord::Overhead(expected), "{version}");
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
    assert_eq!(reduced.record, WireRecord::Stream(expected));

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
                WireRecord::Context(expected),
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
        assert_eq!(reduced.record, WireRecord::Device(expected), "{version}");
        assert_eq!(reduced.texts, [0x7f00_0000_1000, 0]);
        assert!(matches!(reduced.named([3, 0]), WireRecord::Device(d) if d.name == 3));
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
    assert_eq!(reduced.named([6, 0]), WireRecord::Name(expected));

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
    assert_eq!(reduced.named([6, 7]), WireRecord::Marker(expected));
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
    assert_eq!(reduced.record, WireRecord::ExternalCorrelation(expected));
}
