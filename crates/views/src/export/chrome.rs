//! A trace in the Trace Event Format of Chrome.

use std::io::{self, BufWriter, Write};

use anyhow::{Context, Result};

use gpuprobe_report::trace_rows::TraceRows;

/// Writes the rows as they come: viewers sort them.
pub(super) fn write(rows: &TraceRows, out: &mut dyn Write) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let about = rows.about();
    write!(out, "{{\"otherData\":{about},\"traceEvents\":[").context("cannot write")?;
    let mut separator = &b"\n"[..];
    rows.each(&mut |row| {
        out.write_all(separator)
            .and_then(|()| serde_json::to_writer(&mut out, row).map_err(io::Error::from))
            .context("cannot write")?;
        separator = b",\n";
        Ok(())
    })?;
    write!(out, "\n]}}\n")
        .and_then(|()| out.flush())
        .context("cannot write")
}
