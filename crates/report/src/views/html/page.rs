//! The HTML file: the page with a document inside.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::document::PageData;
use gpuprobe_os::files;

/// The page, built from `web/`.
const PAGE: &str = include_str!("../../../../../web/dist/report.html");
/// Stands in the page for the document.
const DATA: &str = "@DATA@";

/// Writes the page with `document`, compressed and in letters that HTML does not interpret.
pub(super) fn write(document: &PageData, output: &Path) -> Result<()> {
    let why = || format!("cannot write to {}", output.display());
    let out: Box<dyn Write> = match files::is_stdout(output) {
        true => Box::new(std::io::stdout().lock()),
        false => Box::new(files::create(output).with_context(why)?),
    };
    let mut out = BufWriter::with_capacity(1 << 18, out);
    write_to(document, &mut out).with_context(why)
}

fn write_to(document: &PageData, out: &mut dyn Write) -> Result<()> {
    let (before, after) = PAGE
        .split_once(DATA)
        .context("the page has no place for data")?;
    ensure!(
        !after.contains(DATA),
        "the page has several places for data"
    );
    out.write_all(before.as_bytes())?;
    let encoder = EncoderWriter::new(&mut *out, &STANDARD);
    let mut compressed = GzEncoder::new(encoder, Compression::best());
    serde_json::to_writer(&mut compressed, document)?;
    compressed.finish()?.finish()?;
    out.write_all(after.as_bytes())?;
    out.flush()?;
    Ok(())
}
