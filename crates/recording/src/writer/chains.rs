//! Call stacks of a recording.
//!
//! A call refers to its stack at once. Frames are resolved later: the rows of a stack are written
//! when all its frames are resolved, or at the end with those that are.

use std::collections::HashMap;

use rusqlite::{Result, params};

use super::tables::Tables;
use crate::chains::module_of;
use gpuprobe_model::stack::{CallStack, Frame, KnownFrames, Language, Location, bare_frame};

/// Writer of call stacks.
#[derive(Default)]
pub(super) struct Chains {
    /// Chain ids by process and stack id.
    by_number: HashMap<(u32, u64), i64>,
    by_contents: HashMap<(u32, CallStack), i64>,
    waiting: Vec<WaitingChain>,
    known: KnownFrames,
    last_id: i64,
    /// Frames were resolved since stacks were last written.
    has_new_frames: bool,
}

/// A stack without rows so far.
struct WaitingChain {
    id: i64,
    pid: u32,
    stack: CallStack,
}

impl Chains {
    /// Adds a stack of `pid` with its stack id.
    pub(super) fn learn(&mut self, pid: u32, number: u64, stack: CallStack) {
        let next = self.last_id + 1;
        let id = self.by_contents.entry((pid, stack.clone()));
        let id = *id.or_insert(next);
        self.by_number.insert((pid, number), id);
        if id == next {
            self.last_id = id;
            self.waiting.push(WaitingChain { id, pid, stack });
            self.has_new_frames = true;
        }
    }

    /// Sets the frames of a location; an empty list removes them.
    pub(super) fn add_frames(
        &mut self,
        pid: u32,
        location: Location,
        is_innermost: bool,
        frames: Vec<Frame>,
    ) {
        self.known.insert(pid, location, is_innermost, frames);
        self.has_new_frames = true;
    }

    /// Drops the addresses of an ended process, and returns its stack ids.
    pub(super) fn end(&mut self, pid: u32) -> Vec<(u32, u64)> {
        self.by_contents.retain(|(of, _), _| *of != pid);
        let numbers = self.by_number.keys().filter(|(of, _)| *of == pid);
        numbers.copied().collect()
    }

    /// Drops stack ids.
    pub(super) fn forget(&mut self, numbers: &[(u32, u64)]) {
        for key in numbers {
            self.by_number.remove(key);
        }
    }

    /// The chain id of a stack id of `pid`.
    pub(super) fn id(&self, pid: u32, number: u64) -> Option<i64> {
        self.by_number.get(&(pid, number)).copied()
    }

    /// Writes the stacks whose frames are all resolved; at the end, all stacks.
    pub(super) fn write(&mut self, tables: &mut Tables<'_>, is_end: bool) -> Result<()> {
        if !std::mem::take(&mut self.has_new_frames) && !is_end {
            return Ok(());
        }
        for waiting in std::mem::take(&mut self.waiting) {
            let is_known =
                |(depth, location)| self.known.contains(waiting.pid, location, depth == 0);
            let mut each = waiting.stack.locations.iter().enumerate();
            match is_end || each.all(is_known) {
                true => self.write_one(&waiting, tables)?,
                false => self.waiting.push(waiting),
            }
        }
        Ok(())
    }

    fn write_one(&mut self, stack: &WaitingChain, tables: &mut Tables<'_>) -> Result<()> {
        let mut depth = 0;
        for (index, location) in stack.stack.locations.iter().enumerate() {
            let known = self.known.get(stack.pid, location, index == 0);
            let is_bare = known.is_none();
            for frame in known.unwrap_or_else(|| vec![bare_frame(location)]) {
                let is_unresolved = is_bare || is_unnamed(&frame);
                self.frame(stack.id, depth, &frame, is_unresolved, tables)?;
                depth += 1;
            }
        }
        let row = params![stack.id, stack.stack.is_complete];
        tables.insert("GPUPROBE_STACKS", row)
    }

    fn frame(
        &mut self,
        id: i64,
        depth: i64,
        frame: &Frame,
        is_unresolved: bool,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let symbol = tables.string(&plain(&frame.function))?;
        let module = tables.string(&plain(module_of(frame)))?;
        let unresolved = is_unresolved.then_some(1);
        let address = frame.address.cast_signed();
        let row = params![id, symbol, module, unresolved, address, depth];
        tables.insert("CUDA_CALLCHAINS", row)?;
        let is_python = frame.language == Language::Python;
        if frame.file.is_none() && !frame.inlined && !is_python {
            return Ok(());
        }
        let mut optional = |text: Option<&str>| {
            let id = text.map(|text| tables.string(&plain(text)));
            id.transpose()
        };
        let file = optional(frame.file.as_deref())?;
        let language = optional(Some(frame.language.name()))?;
        let source = optional(frame.source.as_deref())?;
        let (line, inlined) = (frame.line, frame.inlined);
        let row = params![id, depth, file, line, inlined, language, source];
        tables.insert("GPUPROBE_FRAMES", row)
    }
}

/// Replaces tabs and line breaks, as exports do.
fn plain(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

/// Whether the name is only a location: `MODULE+0xOFFSET` or an address.
fn is_unnamed(frame: &Frame) -> bool {
    if frame.language == Language::Python {
        return false;
    }
    let place = frame.function.rsplit('+').next().unwrap_or("");
    let digits = place.strip_prefix("0x").unwrap_or("");
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit())
}
