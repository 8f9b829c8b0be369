//! Tables of memory events: one tab-separated row for each, in one file for each kind of trace.
//!
//! Columns and names are those of the "GPU device memory usage" scripts.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result};

use crate::analysis::Filter;
use gpuprobe_cuda::names::plain_name;
use gpuprobe_cuda::nsys::{ALLOCATION, DEALLOCATION};
use gpuprobe_os::files;
use gpuprobe_recording::memory_rows::{self, CallFilter, MemoryItem, RowSink};
use gpuprobe_recording::{
    ChainFrame, Database, MemoryRow, OriginatingCall, Resolver, Trace, ids, kinds,
};

/// Header line of each file.
const COLUMNS: &str =
    "PID\taddress\tstart_time\tbytes\tmem_kind\tmem_op_type\tvar_name\tcall_stack";

/// Text for an unknown call stack.
const NO_STACK: &str = "STACK_NOT_FOUND";

/// Separator between the frames of a stack.
const ARROW: &str = " -> ";

struct TsvFiles<'a> {
    filter: Filter,
    first_ns: Option<i64>,
    resolver: Resolver<'a>,
    /// In the order of [`Trace::ALL`].
    files: Vec<BufWriter<File>>,
}

/// Writes `valid.tsv`, `invalid.tsv` and `driver.tsv` into `folder`.
pub(super) fn write(database: &Database, filter: &Filter, folder: &Path) -> Result<()> {
    filter.check(database)?;
    files::create_folder(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let create = |trace: Trace| {
        let path = folder.join(trace.name()).with_extension("tsv");
        let file = files::create(&path);
        let mut file =
            BufWriter::new(file.with_context(|| format!("cannot write to {}", path.display()))?);
        writeln!(file, "{COLUMNS}")?;
        Ok(file)
    };
    let mut files = TsvFiles {
        filter: *filter,
        first_ns: None,
        resolver: Resolver::new(database)?,
        files: Trace::ALL.into_iter().map(create).collect::<Result<_>>()?,
    };
    memory_rows::each(database, CallFilter::default(), &mut files)?;
    for file in &mut files.files {
        file.flush().context("cannot write the export")?;
    }
    Ok(())
}

impl RowSink for TsvFiles<'_> {
    fn take(&mut self, item: MemoryItem) -> Result<ControlFlow<()>> {
        let MemoryItem::Row(event, origin) = item else {
            return Ok(ControlFlow::Continue(()));
        };
        let first_ns = *self.first_ns.get_or_insert(event.start_ns);
        let since_first = event.start_ns.saturating_sub(first_ns);
        if self.filter.to_ns.is_some_and(|to| since_first > to) {
            return Ok(ControlFlow::Break(()));
        }
        if self.filter.includes(&event) {
            self.row(&event, &origin)?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl TsvFiles<'_> {
    fn row(&mut self, event: &MemoryRow, origin: &OriginatingCall) -> Result<()> {
        let stack = match (origin.trace, origin.chain) {
            (Trace::Valid | Trace::Driver, Some(chain)) => {
                let frames: Vec<_> = self.resolver.stack(chain).iter().map(frame).collect();
                frames.join(ARROW)
            }
            (Trace::Driver, _) => origin
                .function
                .map(|id| plain_name(&self.resolver.string(id)).to_owned())
                .unwrap_or_default(),
            _ => String::new(),
        };
        let stack = if stack.is_empty() { NO_STACK } else { &stack };
        let slot = Trace::ALL.iter().position(|trace| *trace == origin.trace);
        let Some(file) = slot.and_then(|slot| self.files.get_mut(slot)) else {
            return Ok(());
        };
        writeln!(
            file,
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            ids::pid(event.process),
            event.address,
            event.start_ns,
            event.bytes,
            kinds::of_id(event.kind).name,
            if event.allocates {
                ALLOCATION
            } else {
                DEALLOCATION
            },
            plain(event.variable.as_deref().unwrap_or("NULL")),
            plain(stack),
        )
        .context("cannot write the export")
    }
}

fn frame(frame: &ChainFrame) -> String {
    format!("[{}] ({})", frame.function, frame.module)
}

/// The text without characters that would end a field or a line.
fn plain(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}
