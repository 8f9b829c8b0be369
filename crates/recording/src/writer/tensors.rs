//! Blocks of frameworks' caching allocators.
//!
//! The requested size comes in a separate record right after the block: rows are held for it.

use std::collections::{HashMap, VecDeque};

use rusqlite::{Connection, params};

use super::common::signed;
use super::insert::Insert;
use gpuprobe_model::event::{Tensor, TensorRequest};

/// Maximum number of held rows: the requested size precedes the thread's next block, but other
/// threads may allocate many blocks while that thread is not running.
const WAITING: usize = 1 << 15;

/// A held row.
struct TensorRow {
    tensor: Tensor,
    time: i64,
    thread: i64,
    chain: Option<i64>,
    request: Option<TensorRequest>,
}

/// Writer of blocks.
pub(super) struct TensorWriter<'c> {
    rows: Insert<'c>,
    waiting: VecDeque<TensorRow>,
    /// Number of rows written before the held ones.
    written: u64,
    /// Rows with lower numbers have been held for a full round.
    settled: u64,
    arrived: u64,
    /// Number of the last held allocation, by process and address.
    handed_out: HashMap<(u32, u64), u64>,
}

impl<'c> TensorWriter<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            rows: Insert::into(connection, "GPUPROBE_TENSORS"),
            waiting: VecDeque::new(),
            written: 0,
            settled: 0,
            arrived: 0,
            handed_out: HashMap::new(),
        }
    }

    /// Adds a block with its session time, global thread id and call stack.
    pub(super) fn block(
        &mut self,
        tensor: Tensor,
        (time, thread): (i64, i64),
        chain: Option<i64>,
    ) -> rusqlite::Result<()> {
        let place = (tensor.pid, tensor.address);
        if tensor.is_free {
            self.handed_out.remove(&place);
        } else {
            let number = self.written + self.waiting.len() as u64;
            self.handed_out.insert(place, number);
        }
        self.waiting.push_back(TensorRow {
            tensor,
            time,
            thread,
            chain,
            request: None,
        });
        match self.waiting.len() > WAITING {
            true => self.write_first(),
            false => Ok(()),
        }
    }

    /// Adds the requested size to its block.
    pub(super) fn request(&mut self, request: &TensorRequest) {
        let number = self.handed_out.get(&(request.pid, request.address));
        let place = number.and_then(|number| number.checked_sub(self.written));
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(row) = place.and_then(|place| self.waiting.get_mut(place)) {
            row.request = Some(*request);
        }
    }

    /// Whether any row is held.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Starts the next round.
    pub(super) fn next_round(&mut self) {
        self.settled = self.arrived;
        self.arrived = self.written + self.waiting.len() as u64;
    }

    /// Writes rows that have been held for a full round; at the end, all rows.
    pub(super) fn settle(&mut self, is_end: bool) -> rusqlite::Result<()> {
        while self.is_waiting() && (is_end || self.written < self.settled) {
            self.write_first()?;
        }
        Ok(())
    }

    fn write_first(&mut self) -> rusqlite::Result<()> {
        let Some(row) = self.waiting.pop_front() else {
            return Ok(());
        };
        let place = (row.tensor.pid, row.tensor.address);
        if self.handed_out.get(&place) == Some(&self.written) {
            self.handed_out.remove(&place);
        }
        self.written += 1;
        let TensorRow {
            tensor,
            time,
            thread,
            chain,
            request,
        } = row;
        self.rows.row(params![
            time,
            thread,
            tensor.device.map_or(-1, i64::from),
            signed(tensor.address),
            signed(tensor.bytes),
            tensor.is_free,
            signed(tensor.allocated_bytes),
            signed(tensor.reserved_bytes),
            request.map(|request| signed(request.bytes)),
            request.map(|request| signed(request.stream)),
            chain
        ])
    }
}
