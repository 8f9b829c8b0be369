//! The trace of a device: pieces of memory that came and went. It is kept compressed, but for the
//! last events.

use std::collections::VecDeque;
use std::io::{BufReader, Write};
use std::ops::Range;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};

use super::StackId;

/// Events that may still change: a requested size is reported before the thread's next block; while
/// the thread does not run, other threads may allocate many blocks.
const LOOK_AHEAD: usize = 1 << 15;
/// More than the encoding of an event takes.
const EVENT_BYTES: usize = 256;

/// What a piece of memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// A block of PyTorch's.
    Block,
    /// Memory from CUDA that is freed as a whole.
    #[default]
    Allocation,
    /// Memory from CUDA that is mapped in the reserved address range with this number.
    Mapping(u64),
    /// PyTorch's memory from before tracing began.
    Unseen,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Of a block: bytes requested, if known; else its size.
    pub(super) requested: u64,
    /// The stream that PyTorch uses it for, once known.
    pub(super) stream: Option<i64>,
    pub(super) stack: StackId,
    #[serde(skip)]
    pub(super) since_ns: u64,
    /// Whether it is certain to be GPU memory.
    #[serde(skip)]
    pub(super) at_gpu: bool,
    /// Number of the event with which it came.
    pub(super) number: usize,
}

impl Piece {
    pub(super) fn new(kind: Kind, address: u64, bytes: u64, since_ns: u64) -> Self {
        Self {
            kind,
            address,
            bytes,
            since_ns,
            ..Self::default()
        }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }
}

/// A piece came or went.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) piece: Piece,
    pub(super) is_free: bool,
    pub(super) time_ns: u64,
    pub(super) stack: StackId,
}

/// The events of a device, in order.
#[derive(Debug)]
pub(super) struct Trace {
    /// The first events, each with the time since the one before; their number, and the time of the
    /// last.
    encoded: DeflateEncoder<Vec<u8>>,
    count: usize,
    encoded_ns: u64,
    recent: VecDeque<Event>,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            encoded: DeflateEncoder::new(Vec::new(), Compression::fast()),
            count: 0,
            encoded_ns: 0,
            recent: VecDeque::new(),
        }
    }
}

impl Trace {
    /// Adds a piece that comes now; returns it with its number.
    pub(super) fn add(&mut self, piece: Piece) -> Piece {
        let number = self.count + self.recent.len();
        let piece = Piece { number, ..piece };
        self.push(piece, false, piece.since_ns, piece.stack);
        piece
    }

    /// Adds an event. Records of several threads may be out of order; an event is never earlier than
    /// the one before.
    pub(super) fn push(&mut self, piece: Piece, is_free: bool, time_ns: u64, stack: StackId) {
        let last_ns = self.recent.back().map_or(0, |last| last.time_ns);
        self.recent.push_back(Event {
            piece,
            is_free,
            time_ns: time_ns.max(last_ns),
            stack,
        });
        if self.recent.len() > LOOK_AHEAD
            && let Some(mut event) = self.recent.pop_front()
        {
            event.time_ns -= std::mem::replace(&mut self.encoded_ns, event.time_ns);
            if event.piece.kind == Kind::Block {
                event.piece.number = 0;
            }
            if postcard::to_io(&event, &mut self.encoded).is_ok() {
                self.count += 1;
            }
        }
    }

    /// More is known of a piece.
    pub(super) fn update(&mut self, piece: Piece) {
        let place = piece.number.checked_sub(self.count);
        if let Some(event) = place.and_then(|place| self.recent.get_mut(place)) {
            event.piece = piece;
        }
    }

    /// Nothing is added any more.
    pub(super) fn finish(&mut self) -> std::io::Result<()> {
        self.encoded.flush()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Event> {
        let encoded = DeflateDecoder::new(&self.encoded.get_ref()[..]);
        let mut encoded = BufReader::new(encoded);
        let mut time_ns = 0;
        let first = (0..self.count).map_while(move |_| {
            let mut bytes = [0; EVENT_BYTES];
            let (event, _): (Event, _) = postcard::from_io((&mut encoded, &mut bytes)).ok()?;
            time_ns += event.time_ns;
            Some(Event { time_ns, ..event })
        });
        first.chain(self.recent.iter().copied())
    }
}
