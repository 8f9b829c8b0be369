//! Blocks of frameworks' allocators.
//!
//! What was asked for is told by a record of its own, right after the block: rows wait a little for it.

use std::collections::VecDeque;

use rusqlite::{Connection, params};

use super::common::signed;
use super::insert::Insert;
use gpuprobe_model::event::{Request, Tensor};

/// Rows that wait: what was asked for comes before the thread's next block, and other threads hand out
/// no more than some in that time.
const WAITING: usize = 1024;
/// How many of the last ones are looked at for what was asked for.
const LOOKED_AT: usize = 64;

/// A row that waits.
struct Row {
    tensor: Tensor,
    time: i64,
    thread: i64,
    chain: Option<i64>,
    request: Option<Request>,
}

/// Writes blocks.
pub(super) struct Tensors<'c> {
    rows: Insert<'c>,
    waiting: VecDeque<Row>,
}

impl<'c> Tensors<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            rows: Insert::into(connection, "GPUPROBE_TENSORS"),
            waiting: VecDeque::new(),
        }
    }

    /// Enters a block, by its time of the session, its global thread, and its call stack.
    pub(super) fn block(
        &mut self,
        tensor: Tensor,
        (time, thread): (i64, i64),
        chain: Option<i64>,
    ) -> rusqlite::Result<()> {
        self.waiting.push_back(Row {
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

    /// Enters what was asked for.
    pub(super) fn request(&mut self, request: &Request) {
        let mut lately = self.waiting.iter_mut().rev().take(LOOKED_AT);
        let row = lately.find(|row| {
            let block = &row.tensor;
            (block.pid, block.address) == (request.pid, request.address)
        });
        if let Some(row) = row.filter(|row| !row.tensor.is_free) {
            row.request = Some(*request);
        }
    }

    /// Writes all that waits.
    pub(super) fn write_all(&mut self) -> rusqlite::Result<()> {
        while !self.waiting.is_empty() {
            self.write_first()?;
        }
        Ok(())
    }

    fn write_first(&mut self) -> rusqlite::Result<()> {
        let Some(row) = self.waiting.pop_front() else {
            return Ok(());
        };
        let Row {
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
