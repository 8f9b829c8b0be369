//! Messages on standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

use gpuprobe_model::text::printable;

/// One line for the user on standard error. Nobody may be reading, which must not stop tracing.
pub fn say(message: impl Display) {
    // Names of files and of programs are in it.
    let message = printable(&message.to_string());
    let _ = writeln!(io::stderr(), "gpuprobe: {message}");
}
