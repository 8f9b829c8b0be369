//! A trace in the Trace Event Format of Chrome.

use std::io::{self, BufWriter, Write};

use anyhow::{Context, Result};
use serde_json::Value;

use gpuprobe_report::analysis::File;
use gpuprobe_report::trace_rows;

/// Writes the rows as they come: viewers sort them.
pub(super) fn write(file: &File, about: &Value, out: &mut dyn Write) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    write!(out, "{{\"otherData\":{about},\"traceEvents\":[").context("cannot write")?;
    let mut separator = &b"\n"[..];
    trace_rows::each(file, &mut |row| {
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
