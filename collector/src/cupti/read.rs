//! One record of CUPTI's to one of ours, by the offsets of `cupti_activity.h`.

use gpuprobe_wire::settings::cupti_kind as kind;
use gpuprobe_wire::{self as wire, Record, UNKNOWN_ID};

use super::fields::Fields;
use super::version::{Generation, Version};

/// Where a text that ends with a zero begins, in the process that the record is of; 0 is none.
pub type Address = u64;

/// What there is of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Read.
    Record(Reduced),
    /// Its kind has no place in a batch; the number is CUPTI's.
    Unknown(u32),
    /// There are fewer bytes than its kind has.
    Short,
}

/// A record whose texts have no ids yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduced {
    /// The record.
    pub record: Record,
    /// Name, and qualifier: a marker's domain, the library that allocated.
    pub texts: [Address; 2],
}

impl Reduced {
    /// With the ids of its two texts in their places.
    #[must_use]
    pub fn named(mut self, [name, qualifier]: [u32; 2]) -> Record {
        match &mut self.record {
            Record::Device(device) => device.name = name,
            Record::Kernel(kernel) => kernel.name = name,
            Record::Memory(memory) => {
                memory.name = name;
                memory.source = qualifier;
            }
            Record::Name(named) => named.name = name,
            Record::Marker(marker) => {
                marker.name = name;
                marker.domain = qualifier;
            }
            _ => {}
        }
        self.record
    }
}

/// Reads the record at the beginning of `bytes`, which may go on behind it.
#[must_use]
pub fn read(version: Version, bytes: &[u8]) -> Outcome {
    let Some(number) = bytes.first_chunk().map(|first| u32::from_le_bytes(*first)) else {
        return Outcome::Short;
    };
    let Some(row) = ROWS.iter().find(|row| row.kinds.contains(&number)) else {
        return Outcome::Unknown(number);
    };
    if bytes.len() < row.bytes(version) {
        return Outcome::Short;
    }
    Outcome::Record((row.read)(&Reader {
        version,
        kind: number,
        fields: Fields(bytes),
    }))
}

/// How records of a kind are read.
struct Row {
    kinds: &'static [u32],
    /// Smallest size by generation, oldest first: from which version on, and bytes.
    sizes: &'static [(Generation, usize)],
    read: fn(&Reader<'_>) -> Reduced,
}

impl Row {
    fn bytes(&self, version: Version) -> usize {
        let had = self.sizes.iter().rev().find(|size| version.has(size.0));
        had.map_or(0, |size| size.1)
    }
}

use Generation::{Common, V12_4, V12_8, V13_0, V13_5};

/// Most frequent first.
const ROWS: &[Row] = &[
    Row {
        kinds: &[kind::RUNTIME, kind::DRIVER, kind::INTERNAL_LAUNCH_API],
        sizes: &[(Common, 40)],
        read: api,
    },
    Row {
        kinds: &[kind::CONCURRENT_KERNEL, kind::KERNEL],
        sizes: &[(Common, 200), (V13_0, 216), (V13_5, 248)],
        read: kernel,
    },
    Row {
        kinds: &[kind::MEMCPY],
        sizes: &[(Common, 88), (V12_8, 96), (V13_5, 112)],
        read: memcpy,
    },
    Row {
        kinds: &[kind::MEMSET],
        sizes: &[(Common, 88), (V13_5, 104)],
        read: memset,
    },
    Row {
        kinds: &[kind::SYNCHRONIZATION],
        sizes: &[(Common, 40), (V12_8, 56)],
        read: sync,
    },
    Row {
        kinds: &[kind::MEMORY2],
        sizes: &[(Common, 120), (V12_8, 128)],
        read: memory,
    },
    Row {
        kinds: &[kind::MEMCPY2],
        sizes: &[(Common, 96)],
        read: memcpy_peer,
    },
    Row {
        kinds: &[kind::GRAPH_TRACE],
        sizes: &[(Common, 48), (V12_4, 56)],
        read: graph_trace,
    },
    Row {
        kinds: &[kind::EXTERNAL_CORRELATION],
        sizes: &[(Common, 24)],
        read: external_correlation,
    },
    Row {
        kinds: &[kind::MARKER],
        sizes: &[(Common, 56)],
        read: marker,
    },
    Row {
        kinds: &[kind::MEMORY_POOL],
        sizes: &[(Common, 72), (V13_0, 80)],
        read: memory_pool,
    },
    Row {
        kinds: &[kind::OVERHEAD],
        sizes: &[(Common, 40), (V12_4, 56)],
        read: overhead,
    },
    Row {
        kinds: &[kind::STREAM],
        sizes: &[(Common, 24)],
        read: stream,
    },
    Row {
        kinds: &[kind::CONTEXT],
        sizes: &[(Common, 16), (V12_4, 24), (V12_8, 32), (V13_5, 40)],
        read: context,
    },
    Row {
        kinds: &[kind::DEVICE],
        sizes: &[(Common, 176), (V12_4, 184), (V13_5, 192)],
        read: device,
    },
    Row {
        kinds: &[kind::NAME],
        sizes: &[(Common, 32)],
        read: name,
    },
];

/// A record that is as long as its version makes it.
struct Reader<'a> {
    version: Version,
    kind: u32,
    fields: Fields<'a>,
}

impl Reader<'_> {
    /// An id of a context or stream.
    fn id(&self, offset: usize) -> u32 {
        let id = self.fields.u32(offset);
        if self.version.is_no_id(id) {
            UNKNOWN_ID
        } else {
            id
        }
    }

    /// A number that only versions from `since` on have.
    fn since(&self, since: Generation, offset: usize) -> Option<u32> {
        self.version.has(since).then(|| self.fields.u32(offset))
    }

    fn flag_since(&self, since: Generation, offset: usize) -> u32 {
        u32::from(self.version.has(since) && self.fields.u8(offset) != 0)
    }

    /// `CUpti_ActivityObjectKindId` at `offset`, its kind given.
    fn object(&self, object_kind: u32, offset: usize) -> wire::Object {
        let part = |step| self.fields.u32(offset + step);
        let (has_b, has_c) = (matches!(object_kind, 2 | 4 | 5), matches!(object_kind, 5));
        wire::Object {
            kind: object_kind,
            a: part(0),
            b: if has_b { part(4) } else { 0 },
            c: if has_c { part(8) } else { 0 },
        }
    }
}

fn plain(record: Record) -> Reduced {
    Reduced {
        record,
        texts: [0; 2],
    }
}

/// Which function of `cuptiGetCallbackName` an API record's kind is about.
const DRIVER_API: u32 = 1;
const RUNTIME_API: u32 = 2;
const INTERNAL_LAUNCH: u32 = 3;

fn api(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    plain(Record::Api(wire::Api {
        start_ns: f.u64(8),
        end_ns: f.u64(16),
        domain: match reader.kind {
            kind::DRIVER => DRIVER_API,
            kind::RUNTIME => RUNTIME_API,
            _ => INTERNAL_LAUNCH,
        },
        cbid: f.u32(4),
        pid: f.u32(24),
        tid: f.u32(28),
        correlation: f.u32(32),
        result: f.u32(36),
    }))
}

fn kernel(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    let record = Record::Kernel(wire::Kernel {
        start_ns: f.u64(16),
        end_ns: f.u64(24),
        queued_ns: f.u64(120),
        submitted_ns: f.u64(128),
        completed_ns: f.u64(32),
        grid_id: f.u64(96).cast_signed(),
        graph_node: f.u64(144),
        local_memory_total: f.u64(192),
        name: 0,
        device: f.u32(40),
        context: reader.id(44),
        stream: reader.id(48),
        correlation: f.u32(92),
        graph: f.u32(156),
        grid: f.triple(52),
        block: f.triple(64),
        cluster: f.triple(176),
        static_shared_memory: f.u32(76),
        dynamic_shared_memory: f.u32(80),
        shared_memory_executed: f.u32(140),
        local_memory_per_thread: f.u32(84),
        channel: f.u32(168),
        channel_type: f.u32(172),
        registers_per_thread: f.u16(6),
        cache_config: f.u8(4),
        launch_type: f.u8(136),
        shared_memory_limit_config: f.u32(152),
        concurrent: u32::from(reader.kind == kind::CONCURRENT_KERNEL),
        device_launched: reader.flag_since(V13_0, 208),
        reserved: 0,
    });
    Reduced {
        record,
        texts: [f.u64(104), 0],
    }
}

fn memcpy(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    plain(Record::Memcpy(wire::Memcpy {
        graph_node: f.u64(64),
        copies: if reader.version.has(V12_8) {
            f.u64(88)
        } else {
            1
        },
        peer: 0,
        correlation: f.u32(44),
        runtime_correlation: f.u32(48),
        graph: f.u32(72),
        source_device: UNKNOWN_ID,
        source_context: UNKNOWN_ID,
        destination_device: UNKNOWN_ID,
        destination_context: UNKNOWN_ID,
        channel: f.u32(76),
        channel_type: f.u32(80),
        ..any_memcpy(reader)
    }))
}

fn memcpy_peer(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    plain(Record::Memcpy(wire::Memcpy {
        graph_node: f.u64(72),
        copies: 1,
        peer: 1,
        correlation: f.u32(60),
        runtime_correlation: 0,
        graph: f.u32(80),
        source_device: f.u32(44),
        source_context: reader.id(48),
        destination_device: f.u32(52),
        destination_context: reader.id(56),
        channel: f.u32(84),
        channel_type: f.u32(88),
        ..any_memcpy(reader)
    }))
}

/// What both kinds of copies have in the same places.
fn any_memcpy(reader: &Reader<'_>) -> wire::Memcpy {
    let f = &reader.fields;
    wire::Memcpy {
        start_ns: f.u64(16),
        end_ns: f.u64(24),
        size_bytes: f.u64(8),
        copy_kind: f.u8(4),
        source_kind: f.u8(5),
        destination_kind: f.u8(6),
        flags: f.u8(7),
        device: f.u32(32),
        context: reader.id(36),
        stream: reader.id(40),
        ..wire::Memcpy::default()
    }
}

fn memset(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    plain(Record::Memset(wire::Memset {
        start_ns: f.u64(16),
        end_ns: f.u64(24),
        size_bytes: f.u64(8),
        graph_node: f.u64(64),
        value: f.u32(4),
        device: f.u32(32),
        context: reader.id(36),
        stream: reader.id(40),
        correlation: f.u32(44),
        flags: f.u16(48),
        memory_kind: f.u16(50),
        graph: f.u32(72),
        channel: f.u32(76),
        channel_type: f.u32(80),
        reserved: 0,
    }))
}

fn memory(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    let record = Record::Memory(wire::Memory {
        time_ns: f.u64(32),
        address: f.u64(16),
        size_bytes: f.u64(24),
        pc: f.u64(40),
        pool_address: f.u64(88),
        pool_size: f.u64(104),
        pool_release_threshold: f.u64(96),
        pool_utilized: f.u64(112),
        operation: f.u32(4),
        memory_kind: f.u32(8),
        pid: f.u32(48),
        device: f.u32(52),
        context: reader.id(56),
        stream: reader.id(60),
        correlation: f.u32(12),
        name: 0,
        asynchronous: f.u32(72),
        pool_type: f.u32(80),
        source: 0,
        reserved: 0,
    });
    let source = if reader.version.has(V12_8) {
        f.u64(120)
    } else {
        0
    };
    Reduced {
        record,
        texts: [f.u64(64), source],
    }
}

fn memory_pool(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    plain(Record::MemoryPool(wire::MemoryPool {
        time_ns: f.u64(56),
        address: f.u64(32),
        size_bytes: f.u64(40),
        utilized_bytes: f.u64(64),
        release_threshold: f.u64(48),
        min_bytes_to_keep: f.u64(24),
        operation: f.u32(4),
        pool_type: f.u32(8),
        pid: f.u32(16),
        device: f.u32(20),
        correlation: f.u32(12),
        managed: reader.flag_since(V13_0, 72),
    }))
}

fn sync(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    plain(Record::Sync(wire::Sync {
        start_ns: f.u64(8),
        end_ns: f.u64(16),
        sync_type: f.u32(4),
        context: reader.id(28),
        stream: reader.id(32),
        correlation: f.u32(24),
        event: f.u32(36),
        result: reader.since(V12_8, 48).unwrap_or(0),
    }))
}

fn graph_trace(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    let (device, context) = (f.u32(24), reader.id(32));
    let has_end = reader.version.has(V12_4);
    plain(Record::GraphTrace(wire::GraphTrace {
        start_ns: f.u64(8),
        end_ns: f.u64(16),
        device,
        context,
        stream: reader.id(36),
        correlation: f.u32(4),
        graph: f.u32(28),
        end_device: if has_end { f.u32(48) } else { device },
        end_context: if has_end { reader.id(52) } else { context },
        reserved: 0,
    }))
}

fn overhead(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    plain(Record::Overhead(wire::Overhead {
        start_ns: f.u64(24),
        end_ns: f.u64(32),
        overhead_kind: f.u32(4),
        object: reader.object(f.u32(8), 12),
        correlation: reader.since(V12_4, 40).unwrap_or(0),
    }))
}

fn stream(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    plain(Record::Stream(wire::Stream {
        context: reader.id(4),
        stream: reader.id(8),
        priority: f.i32(12),
        flag: f.u32(16),
        correlation: f.u32(20),
        reserved: 0,
    }))
}

fn context(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    let parent = reader.version.has(V12_4) && f.u8(20) != 0;
    plain(Record::Context(wire::Context {
        context: f.u32(4),
        device: f.u32(8),
        compute_api: f.u16(12),
        null_stream: f.u16(14),
        // Of a context that is not green, the field is whatever CUPTI left in it.
        parent_context: if parent { reader.id(16) } else { UNKNOWN_ID },
    }))
}

fn device(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    let record = Record::Device(wire::Device {
        memory_bandwidth: f.u64(8),
        memory_bytes: f.u64(16),
        uuid: f.bytes16(120),
        name: 0,
        device: f.u32(112),
        clock_khz: f.u32(36),
        multiprocessors: f.u32(44),
        capability_major: f.u32(104),
        capability_minor: f.u32(108),
        l2_cache_bytes: f.u32(28),
        constant_memory_bytes: f.u32(24),
        threads_per_warp: f.u32(32),
        copy_engines: f.u32(40),
        max_warps_per_multiprocessor: f.u32(52),
        max_blocks_per_multiprocessor: f.u32(56),
        max_shared_memory_per_multiprocessor: f.u32(60),
        max_registers_per_multiprocessor: f.u32(64),
        max_registers_per_block: f.u32(68),
        max_shared_memory_per_block: f.u32(72),
        max_threads_per_block: f.u32(76),
        max_block_dim: f.triple(80),
        max_grid_dim: f.triple(92),
        ecc_enabled: f.u32(116),
    });
    Reduced {
        record,
        texts: [f.u64(136), 0],
    }
}

fn name(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    let record = Record::Name(wire::Name {
        object: reader.object(f.u32(4), 8),
        name: 0,
        reserved: 0,
    });
    Reduced {
        record,
        texts: [f.u64(24), 0],
    }
}

fn marker(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    let record = Record::Marker(wire::Marker {
        time_ns: f.u64(8),
        flags: f.u32(4),
        id: f.u32(16),
        object: reader.object(f.u32(20), 24),
        name: 0,
        domain: 0,
    });
    Reduced {
        record,
        texts: [f.u64(40), f.u64(48)],
    }
}

fn external_correlation(reader: &Reader<'_>) -> Reduced {
    let f = &reader.fields;
    plain(Record::ExternalCorrelation(wire::ExternalCorrelation {
        external_id: f.u64(8),
        external_kind: f.u32(4),
        correlation: f.u32(16),
    }))
}
