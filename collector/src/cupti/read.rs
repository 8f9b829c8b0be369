//! Conversion of a CUPTI record to a wire record, by the offsets of `cupti_activity.h`.

use gpuprobe_wire::settings::cupti_kind as kind;
use gpuprobe_wire::{self as wire, UNKNOWN_ID, WireRecord};
use zerocopy::FromBytes;

use super::version::{CuptiVersion, Generation};

/// Address of a zero-terminated text in the process of the record; 0 for none.
pub type Address = u64;

/// Result of reading a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// A valid record of a known kind.
    Record(Reduced),
    /// A kind that is not collected; the number is CUPTI's.
    Unknown(u32),
    /// The record is shorter than its kind requires.
    Short,
}

/// A record whose texts have no ids yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduced {
    /// The record without text ids.
    pub record: WireRecord,
    /// Name, and qualifier (domain of a marker, or library that allocated).
    pub texts: [Address; 2],
}

impl Reduced {
    /// The record with the ids of its two texts.
    #[inline]
    #[must_use]
    pub fn named(mut self, ids: [u32; 2]) -> WireRecord {
        for (text, id) in self.record.texts().into_iter().flatten().zip(ids) {
            *text = id;
        }
        self.record
    }
}

/// Reads the record at the beginning of `bytes`; further bytes are ignored.
#[inline]
#[must_use]
pub fn read(version: CuptiVersion, bytes: &[u8]) -> ReadResult {
    let Some(kind) = bytes.first_chunk().map(|first| u32::from_le_bytes(*first)) else {
        return ReadResult::Short;
    };
    let Some(layout) = LAYOUTS.iter().find(|layout| layout.kinds.contains(&kind)) else {
        return ReadResult::Unknown(kind);
    };
    if bytes.len() < layout.bytes(version) {
        return ReadResult::Short;
    }
    let reader = RecordReader {
        version,
        kind,
        bytes,
    };
    (layout.read)(&reader)
}

/// Layout of the records of some kinds.
struct RecordLayout {
    kinds: &'static [u32],
    /// Minimum size in bytes by generation, oldest first.
    sizes: &'static [(Generation, usize)],
    read: fn(&RecordReader<'_>) -> ReadResult,
}

impl RecordLayout {
    fn bytes(&self, version: CuptiVersion) -> usize {
        let had = self.sizes.iter().rev().find(|size| version.has(size.0));
        had.map_or(0, |size| size.1)
    }
}

/// A record with the length of its version.
struct RecordReader<'a> {
    version: CuptiVersion,
    kind: u32,
    bytes: &'a [u8],
}

impl RecordReader<'_> {
    /// The number or numbers at `offset`; zeros beyond the end.
    fn at<T: FromBytes + Default>(&self, offset: usize) -> T {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        T::read_from_prefix(rest).map_or_else(|_short| T::default(), |(number, _)| number)
    }

    /// A number that exists since version `since`.
    fn since<T: FromBytes + Default>(&self, since: Generation, offset: usize) -> Option<T> {
        self.version.has(since).then(|| self.at(offset))
    }

    /// A byte that exists since version `since`, as 0 or 1.
    fn flag_since(&self, since: Generation, offset: usize) -> u32 {
        u32::from(self.since(since, offset).unwrap_or(0u8) != 0)
    }

    /// The [`Reduced::texts`] at `offsets`, each with the version that introduced it.
    fn texts(&self, offsets: &[(Generation, usize)]) -> [Address; 2] {
        let mut texts = [0; 2];
        for (text, &(since, offset)) in texts.iter_mut().zip(offsets) {
            *text = self.since(since, offset).unwrap_or(0);
        }
        texts
    }

    /// An id of a context or stream.
    fn id(&self, offset: usize) -> u32 {
        let id = self.at(offset);
        match self.version.is_no_id(id) {
            true => UNKNOWN_ID,
            false => id,
        }
    }

    /// An object kind at `offset`, followed by its `CUpti_ActivityObjectKindId`.
    fn object(&self, offset: usize) -> wire::Object {
        let kind = self.at(offset);
        let has = |kinds: &[u32], at| {
            if kinds.contains(&kind) {
                self.at(at)
            } else {
                0
            }
        };
        wire::Object {
            kind,
            a: self.at(offset + 4),
            b: has(&[2, 4, 5], offset + 8),
            c: has(&[5], offset + 12),
        }
    }

    /// `CUpti_CallbackDomain` of a call, as for `cuptiGetCallbackName`.
    fn domain(&self) -> u32 {
        match self.kind {
            kind::DRIVER => 1,
            kind::RUNTIME => 2,
            _ => 3,
        }
    }

    fn parent_context(&self) -> u32 {
        // CUPTI leaves the field undefined for other contexts than green ones.
        match self.flag_since(V12_4, 20) {
            0 => UNKNOWN_ID,
            _ => self.id(16),
        }
    }
}

use Generation::{Common, V12_4, V12_8, V13_0, V13_5};

/// Rows of [`LAYOUTS`], with offsets in CUPTI's record. `fields` are copied, `ids` may mean "none",
/// and others are computed; fields that are not named are 0.
macro_rules! layouts {
    ($reader:ident: $($record:ident of [$($kind:ident),+] {
        sizes: Common $common:literal $(, $size_since:ident $size:literal)*;
        $(texts: $($text_since:ident $text:literal),+;)?
        $(fields: $($field:ident $offset:literal),+;)?
        $(ids: $($id:ident $id_offset:literal),+;)?
        $(let $computed:ident = $value:expr;)*
    })+) => {
        &[$(RecordLayout {
            kinds: &[$(kind::$kind),+],
            sizes: &[(Common, $common) $(, ($size_since, $size))*],
            read: |$reader| {
                // Already checked by the caller; here it removes a bounds check per field.
                if $reader.bytes.len() < $common {
                    return ReadResult::Short;
                }
                ReadResult::Record(Reduced {
                    record: WireRecord::$record(wire::$record {
                        $($($field: $reader.at($offset),)+)?
                        $($($id: $reader.id($id_offset),)+)?
                        $($computed: $value,)*
                        ..Default::default()
                    }),
                    texts: $reader.texts(&[$($(($text_since, $text)),+)?]),
                })
            },
        }),+]
    };
}

/// Layouts, most frequent first.
#[allow(clippy::needless_update, reason = "some rows name every field")]
const LAYOUTS: &[RecordLayout] = layouts! { reader:
    Api of [RUNTIME, DRIVER, INTERNAL_LAUNCH_API] {
        sizes: Common 40;
        fields: cbid 4, start_ns 8, end_ns 16, pid 24, tid 28, correlation 32, result 36;
        let domain = reader.domain();
    }
    Kernel of [CONCURRENT_KERNEL, KERNEL] {
        sizes: Common 200, V13_0 216, V13_5 248;
        texts: Common 104;
        fields: cache_config 4, registers_per_thread 6, start_ns 16, end_ns 24, completed_ns 32,
            device 40, grid 52, block 64, static_shared_memory 76, dynamic_shared_memory 80,
            local_memory_per_thread 84, correlation 92, grid_id 96, queued_ns 120, submitted_ns 128,
            launch_type 136, shared_memory_executed 140, graph_node 144,
            shared_memory_limit_config 152, graph 156, channel 168, channel_type 172, cluster 176,
            local_memory_total 192;
        ids: context 44, stream 48;
        let concurrent = u32::from(reader.kind == kind::CONCURRENT_KERNEL);
        let device_launched = reader.flag_since(V13_0, 208);
    }
    Memcpy of [MEMCPY] {
        sizes: Common 88, V12_8 96, V13_5 112;
        fields: copy_kind 4, source_kind 5, destination_kind 6, flags 7, size_bytes 8, start_ns 16,
            end_ns 24, device 32, correlation 44, runtime_correlation 48, graph_node 64, graph 72,
            channel 76, channel_type 80;
        ids: context 36, stream 40;
        let copies = reader.since(V12_8, 88).unwrap_or(1);
        let source_device = UNKNOWN_ID;
        let source_context = UNKNOWN_ID;
        let destination_device = UNKNOWN_ID;
        let destination_context = UNKNOWN_ID;
    }
    Memset of [MEMSET] {
        sizes: Common 88, V13_5 104;
        fields: value 4, size_bytes 8, start_ns 16, end_ns 24, device 32, correlation 44, flags 48,
            memory_kind 50, graph_node 64, graph 72, channel 76, channel_type 80;
        ids: context 36, stream 40;
    }
    Sync of [SYNCHRONIZATION] {
        sizes: Common 40, V12_8 56;
        fields: sync_type 4, start_ns 8, end_ns 16, correlation 24, event 36;
        ids: context 28, stream 32;
        let result = reader.since(V12_8, 48).unwrap_or(0);
    }
    Memory of [MEMORY2] {
        sizes: Common 120, V12_8 128;
        texts: Common 64, V12_8 120;
        fields: operation 4, memory_kind 8, correlation 12, address 16, size_bytes 24, time_ns 32,
            pc 40, pid 48, device 52, asynchronous 72, pool_type 80, pool_address 88,
            pool_release_threshold 96, pool_size 104, pool_utilized 112;
        ids: context 56, stream 60;
    }
    Memcpy of [MEMCPY2] {
        sizes: Common 96;
        fields: copy_kind 4, source_kind 5, destination_kind 6, flags 7, size_bytes 8, start_ns 16,
            end_ns 24, device 32, source_device 44, destination_device 52, correlation 60,
            graph_node 72, graph 80, channel 84, channel_type 88;
        ids: context 36, stream 40, source_context 48, destination_context 56;
        let copies = 1;
        let peer = 1;
    }
    GraphTrace of [GRAPH_TRACE] {
        sizes: Common 48, V12_4 56;
        fields: correlation 4, start_ns 8, end_ns 16, device 24, graph 28;
        ids: context 32, stream 36;
        let end_device = reader.since(V12_4, 48).unwrap_or_else(|| reader.at(24));
        let end_context = reader.id(if reader.version.has(V12_4) { 52 } else { 32 });
    }
    ExternalCorrelation of [EXTERNAL_CORRELATION] {
        sizes: Common 24;
        fields: external_kind 4, external_id 8, correlation 16;
    }
    Marker of [MARKER] {
        sizes: Common 56;
        texts: Common 40, Common 48;
        fields: flags 4, time_ns 8, id 16;
        let object = reader.object(20);
    }
    MemoryPool of [MEMORY_POOL] {
        sizes: Common 72, V13_0 80;
        fields: operation 4, pool_type 8, correlation 12, pid 16, device 20, min_bytes_to_keep 24,
            address 32, size_bytes 40, release_threshold 48, time_ns 56, utilized_bytes 64;
        let managed = reader.flag_since(V13_0, 72);
    }
    Overhead of [OVERHEAD] {
        sizes: Common 40, V12_4 56;
        fields: overhead_kind 4, start_ns 24, end_ns 32;
        let object = reader.object(8);
        let correlation = reader.since(V12_4, 40).unwrap_or(0);
    }
    Stream of [STREAM] {
        sizes: Common 24;
        fields: priority 12, flag 16, correlation 20;
        ids: context 4, stream 8;
    }
    Context of [CONTEXT] {
        sizes: Common 16, V12_4 24, V12_8 32, V13_5 40;
        fields: context 4, device 8, compute_api 12, null_stream 14;
        let parent_context = reader.parent_context();
    }
    Device of [DEVICE] {
        sizes: Common 176, V12_4 184, V13_5 192;
        texts: Common 136;
        fields: memory_bandwidth 8, memory_bytes 16, constant_memory_bytes 24, l2_cache_bytes 28,
            threads_per_warp 32, clock_khz 36, copy_engines 40, multiprocessors 44,
            max_warps_per_multiprocessor 52, max_blocks_per_multiprocessor 56,
            max_shared_memory_per_multiprocessor 60, max_registers_per_multiprocessor 64,
            max_registers_per_block 68, max_shared_memory_per_block 72, max_threads_per_block 76,
            max_block_dim 80, max_grid_dim 92, capability_major 104, capability_minor 108,
            device 112, ecc_enabled 116, uuid 120;
    }
    Name of [NAME] {
        sizes: Common 32;
        texts: Common 24;
        let object = reader.object(4);
    }
};
