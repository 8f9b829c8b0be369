//! One JSON object a line.

use std::io::{self, Write};

use super::{Report, Writer};

pub(super) struct Json;

impl Writer for Json {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, report)?;
        out.write_all(b"\n")
    }
}
