//! API calls and GPU work.

use super::*;

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
            assert_eq!(reduced.record, WireRecord::Api(expected));
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
    // 11.8 and 12.1 report the same number and are read alike.
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
            WireRecord::Kernel(expected_kernel()),
            "{version}"
        );
        assert_eq!(reduced.texts, [0x7f00_1234_5678, 0]);
    }
    let serial = read_at(V12_8, &bytes(kind::KERNEL, 208, KERNEL));
    let expected = wire::Kernel {
        concurrent: 0,
        ..expected_kernel()
    };
    assert_eq!(serial.record, WireRecord::Kernel(expected));
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
        assert_eq!(reduced.record, WireRecord::Kernel(expected), "{version}");
    }
}

#[test]
fn the_text_id_is_inserted() {
    let reduced = read_at(V12_8, &bytes(kind::CONCURRENT_KERNEL, 208, KERNEL));
    let expected = wire::Kernel {
        name: 4,
        ..expected_kernel()
    };
    assert_eq!(reduced.named([4, 9]), WireRecord::Kernel(expected));
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
        assert_eq!(reduced.record, WireRecord::Memcpy(expected), "{version}");
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
    assert_eq!(reduced.record, WireRecord::Memcpy(expected));
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
        assert_eq!(reduced.record, WireRecord::Memset(expected));
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
        assert_eq!(reduced.record, WireRecord::Sync(expected), "{version}");
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
        assert_eq!(
            reduced.record,
            WireRecord::GraphTrace(expected),
            "{version}"
        );
    }
}
