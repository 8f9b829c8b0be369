//! Tables of memory events: one tab-separated row for each, in one file for each kind of trace.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use gpuprobe_analysis::File;
use gpuprobe_analysis::event_rows::{self, COLUMNS, TABLES};
use gpuprobe_os::files;

/// Writes `valid.tsv`, `invalid.tsv` and `driver.tsv` into `folder`.
pub(super) fn write(file: &File, folder: &Path) -> Result<()> {
    files::create_folder(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut all = Vec::new();
    for table in TABLES {
        let path = folder.join(table).with_extension("tsv");
        let out = files::create(&path);
        let out = out.with_context(|| format!("cannot write to {}", path.display()))?;
        let mut out = BufWriter::new(out);
        writeln!(out, "{}", COLUMNS.join("\t"))?;
        all.push(out);
    }
    event_rows::each(file, |table, cells| {
        // Without characters that would end a field or a line.
        let cells = cells.map(|cell| cell.replace(['\t', '\n', '\r'], " "));
        writeln!(all[table], "{}", cells.join("\t")).context("cannot write the export")
    })?;
    for out in &mut all {
        out.flush().context("cannot write the export")?;
    }
    Ok(())
}
