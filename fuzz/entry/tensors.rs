//! Memory calls and tensors of a program, in arbitrary order, generated from arbitrary bytes.

use gpuprobe_cuda::{FUNCTIONS, KindSet, MemoryKind};
use gpuprobe_model::event::{Call, Event, Tensor, TensorRequest};
use gpuprobe_model::identity::Identity;
use gpuprobe_recording::player::Player;

use super::{MODES, make_reports};

const PID: u32 = 7;
/// Start of the range with most addresses, so that they overlap.
const BASE: u64 = 0x7000_0000_0000;
/// Addresses and sizes at limits.
const EDGES: [u64; 8] = [
    0,
    1,
    511,
    1 << 47,
    1 << 60,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];
/// Device indices, valid and invalid.
const DEVICES: [u16; 8] = [0, 0, 0, 1, 2, 239, 240, 255];
/// Memory calls, by a part of the function's name.
const CALLS: [&str; 6] = [
    "cudaMalloc",
    "cudaFree",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemMap",
    "cuMemUnmap",
];

/// Applies the calls encoded in `bytes`, a few bytes each, and makes the reports. Returns the
/// number of events.
pub(crate) fn play_tensors(bytes: &[u8]) -> usize {
    let mut program = Program::new();
    let mut bytes = Bytes(bytes);
    while let Some(what) = bytes.next() {
        program.now_ns += u64::from(what % 2);
        program.step(what, &mut bytes);
    }
    make_reports(&mut program.player);
    program.events
}

/// The rest of the input; zeros follow its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// A multiple of a block's, a segment's or a large segment's size, or a size at a limit.
    fn size(&mut self) -> u64 {
        let byte = u64::from(self.byte());
        let count = byte / 4;
        match byte % 4 {
            0 => count * 512,
            1 => count << 16,
            2 => count * (2 << 20),
            _ => EDGES[count as usize % EDGES.len()],
        }
    }

    /// An address near [`BASE`], or anywhere.
    fn address(&mut self) -> u64 {
        let size = self.size();
        if size > 1 << 32 || size == 1 {
            return size;
        }
        BASE + size
    }
}

struct Program {
    player: Player,
    now_ns: u64,
    events: usize,
}

impl Program {
    fn new() -> Self {
        let kinds: KindSet = MemoryKind::ALL.into_iter().collect();
        let mut player = Player::new(MODES, kinds);
        player.state.watch(true);
        Self {
            player,
            now_ns: 100,
            events: 0,
        }
    }

    fn step(&mut self, what: u8, bytes: &mut Bytes<'_>) {
        let device = DEVICES[usize::from(what >> 5)];
        let event = match what % 32 / 2 {
            0..5 => self.tensor(Some(device), false, bytes),
            5..8 => self.tensor(Some(device), true, bytes),
            8 => self.tensor(None, false, bytes),
            9 => self.tensor(None, true, bytes),
            10 | 11 => Event::Request(TensorRequest {
                pid: PID,
                address: bytes.address(),
                bytes: bytes.size(),
                stream: u64::from(bytes.byte()) * 3,
            }),
            12..15 => self.call(CALLS[usize::from(what >> 5) % CALLS.len()], bytes),
            _ if what >> 5 == 7 => return make_reports(&mut self.player),
            _ => {
                self.now_ns = self.now_ns.saturating_sub(3);
                return;
            }
        };
        let state = &mut self.player.state;
        state.changes().clear();
        state.ledger.apply(&event, |_| Identity::default());
        self.events += 1;
    }

    /// A tensor of PyTorch, or, without a device, of TensorFlow.
    fn tensor(&self, device: Option<u16>, is_free: bool, bytes: &mut Bytes<'_>) -> Event {
        Event::Tensor(Tensor {
            row: row(device.map_or("BFCAllocator", |_| "c10")),
            pid: PID,
            tid: PID,
            time_ns: self.now_ns,
            address: bytes.address(),
            bytes: bytes.size(),
            is_free,
            allocated_bytes: bytes.size(),
            reserved_bytes: bytes.size(),
            device,
            stack: 0,
        })
    }

    fn call(&self, symbol: &str, bytes: &mut Bytes<'_>) -> Event {
        let row = row(symbol);
        Event::Call(Call {
            row,
            function: &FUNCTIONS[usize::from(row)],
            result: 0,
            pid: PID,
            tid: PID,
            start_ns: self.now_ns,
            end_ns: self.now_ns,
            address: bytes.address(),
            size_bytes: bytes.size(),
            device: Some(0),
            context: 0,
            captured: false,
            stack: 0,
            detail: Some(Box::default()),
        })
    }
}

/// First row of the function table with `part` in its name.
fn row(part: &str) -> u16 {
    let row = FUNCTIONS.iter().position(|f| f.symbol.contains(part));
    row.and_then(|row| u16::try_from(row).ok()).unwrap_or(0)
}
