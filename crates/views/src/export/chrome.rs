//! A trace in the Trace Event Format of Chrome.

use std::io::{self, Write};

use anyhow::Result;
use serde_json::Value;

use gpuprobe_analysis::File;
use gpuprobe_analysis::trace_rows;

/// Writes the rows as they come: viewers sort them.
pub(super) fn write(file: &File, about: &Value, out: &mut dyn Write) -> Result<()> {
    write!(out, "{{\"otherData\":{about},\"traceEvents\":[")?;
    let mut separator = &b"\n"[..];
    trace_rows::each(file, &mut |row| {
        out.write_all(separator)?;
        serde_json::to_writer(&mut *out, row).map_err(io::Error::from)?;
        separator = b",\n";
        Ok(())
    })?;
    Ok(write!(out, "\n]}}\n")?)
}
