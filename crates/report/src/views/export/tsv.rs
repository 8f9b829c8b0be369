//! Tables of memory events: one tab-separated row for each, in one file for each kind of trace.
//!
//! Columns and names are those of the "GPU device memory usage" scripts.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::event_rows::{EventRows, TABLES};
use gpuprobe_os::files;

/// Header line of each file.
const COLUMNS: &str =
    "PID\taddress\tstart_time\tbytes\tmem_kind\tmem_op_type\tvar_name\tcall_stack";

/// Writes `valid.tsv`, `invalid.tsv` and `driver.tsv` into `folder`.
pub(super) fn write(rows: &EventRows, folder: &Path) -> Result<()> {
    files::create_folder(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut all = Vec::new();
    for table in TABLES {
        let path = folder.join(table).with_extension("tsv");
        let file = files::create(&path);
        let file = file.with_context(|| format!("cannot write to {}", path.display()))?;
        let mut file = BufWriter::new(file);
        writeln!(file, "{COLUMNS}")?;
        all.push(file);
    }
    rows.each(|row| {
        let stack = match row.stack.join(" -> ") {
            none if none.is_empty() => "STACK_NOT_FOUND".to_owned(),
            stack => stack,
        };
        writeln!(
            all[row.table],
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            row.pid,
            row.address,
            row.start_ns,
            row.bytes,
            row.kind,
            row.operation,
            plain(row.variable.as_deref().unwrap_or("NULL")),
            plain(&stack),
        )
        .context("cannot write the export")
    })?;
    for file in &mut all {
        file.flush().context("cannot write the export")?;
    }
    Ok(())
}

/// The text without characters that would end a field or a line.
fn plain(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}
