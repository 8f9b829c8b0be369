//! Memory events with their call stacks, one row each.

use std::ops::ControlFlow;

use anyhow::Result;

use crate::File;
use gpuprobe_cuda::names::plain_name;
use gpuprobe_cuda::nsys::{ALLOCATION, DEALLOCATION};
use gpuprobe_recording::memory_rows::{self, MemoryItem, RowFilter};
use gpuprobe_recording::{MemoryRow, OriginatingCall, Resolver, Trace, ids, kinds, module_of};

/// What is known of the call of an event.
pub const TABLES: [&str; 3] = [
    Trace::ALL[0].name(),
    Trace::ALL[1].name(),
    Trace::ALL[2].name(),
];

/// Text for an unknown call stack.
const NO_STACK: &str = "STACK_NOT_FOUND";

/// Columns of a row: those of the "GPU device memory usage" scripts.
pub const COLUMNS: [&str; 8] = [
    "PID",
    "address",
    "start_time",
    "bytes",
    "mem_kind",
    "mem_op_type",
    "var_name",
    "call_stack",
];

/// Passes the memory events of `file` to `write`, with the indices of their tables.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or if `write` fails.
pub fn each(file: &File, mut write: impl FnMut(usize, [String; 8]) -> Result<()>) -> Result<()> {
    let resolver = Resolver::new(&file.database)?;
    let mut first_ns = None;
    let mut take = |item| {
        let MemoryItem::Row(event, origin) = item else {
            return Ok(ControlFlow::Continue(()));
        };
        let first_ns = *first_ns.get_or_insert(event.start_ns);
        let since_first = event.start_ns.saturating_sub(first_ns);
        if file.filter.end_ns().is_some_and(|to| since_first > to) {
            return Ok(ControlFlow::Break(()));
        }
        let table = Trace::ALL.iter().position(|trace| *trace == origin.trace);
        let rows = file.filter.rows();
        let is_selected = rows.includes(Some(event.process), Some(event.device));
        if let Some(table) = table.filter(|_| is_selected) {
            write(table, row(event, origin, &resolver))?;
        }
        Ok(ControlFlow::Continue(()))
    };
    memory_rows::each(&file.database, RowFilter::default(), &mut take).map(drop)
}

fn row(event: MemoryRow, origin: OriginatingCall, resolver: &Resolver<'_>) -> [String; 8] {
    let stack = match (origin.trace, origin.chain, origin.function) {
        (Trace::Valid | Trace::Driver, Some(chain), _) => {
            let frames = resolver.stack(chain);
            let frames = frames.iter();
            let frames = frames.map(|frame| format!("[{}] ({})", frame.function, module_of(frame)));
            frames.collect::<Vec<_>>().join(" -> ")
        }
        (Trace::Driver, None, Some(function)) => plain_name(&resolver.string(function)).to_owned(),
        _ => String::new(),
    };
    let operation = match event.allocates {
        true => ALLOCATION,
        false => DEALLOCATION,
    };
    [
        ids::pid(event.process).to_string(),
        event.address.to_string(),
        event.start_ns.to_string(),
        event.bytes.to_string(),
        kinds::of_id(event.kind).name.to_owned(),
        operation.to_owned(),
        event.variable.map_or("NULL".to_owned(), String::from),
        Some(stack)
            .filter(|stack| !stack.is_empty())
            .unwrap_or(NO_STACK.to_owned()),
    ]
}
