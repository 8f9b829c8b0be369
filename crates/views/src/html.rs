//! `gpuprobe report --html`: a recording as one HTML file, with its data inside. The page is built from `web/` and kept
//! in `web/dist/report.html`.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::GzEncoder;

use gpuprobe_analysis::page::Page;

const PAGE: &str = include_str!("../../../web/dist/report.html");
/// Stands in the page for the document.
const DATA: &str = "@DATA@";

/// Writes the file with `page` in it, compressed and in letters that HTML does not interpret; `-` is standard output.
///
/// # Errors
///
/// Returns an error if the output cannot be written.
pub fn write(page: &Page, output: &Path) -> Result<()> {
    super::to_output(Some(output), false, |out| write_to(page, out))
}

fn write_to(page: &Page, out: &mut dyn Write) -> Result<()> {
    let (before, after) = PAGE
        .split_once(DATA)
        .context("the page has no place for data")?;
    out.write_all(before.as_bytes())?;
    let encoder = EncoderWriter::new(&mut *out, &STANDARD);
    let mut compressed = GzEncoder::new(encoder, Compression::best());
    serde_json::to_writer(&mut compressed, page).map_err(io::Error::from)?;
    compressed.finish()?.finish()?;
    out.write_all(after.as_bytes())?;
    Ok(())
}
