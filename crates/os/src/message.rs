//! Messages on standard error.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use gpuprobe_model::text::printable;

static LINES: AtomicU64 = AtomicU64::new(0);

/// Lines that were written to standard error so far: whoever draws on a terminal must know that
/// something else has been written there.
pub fn lines_said() -> u64 {
    LINES.load(Ordering::Relaxed)
}

/// Counts a line of [`lines_said`] that [`say`] does not write.
pub fn count_line() {
    LINES.fetch_add(1, Ordering::Relaxed);
}

/// One line for the user on standard error. Nobody may be reading, which must not stop tracing.
pub fn say(message: impl Display) {
    // Names of files and of programs are in it.
    let message = printable(&message.to_string());
    count_line();
    let _ = writeln!(io::stderr(), "gpuprobe: {message}");
}
