//! Messages on standard error.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuprobe_model::text::printable;

static LINES: AtomicU64 = AtomicU64::new(0);

/// Called before each line.
static BEFORE: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Has `hook` called before each line on standard error, to clear what is drawn there. The first hook
/// remains for the life of the program; it must not print lines itself.
pub fn before_lines(hook: impl Fn() + Send + Sync + 'static) {
    let _ = BEFORE.set(Box::new(hook));
}

/// Number of lines written to standard error so far; code that redraws a terminal checks it for
/// other output.
pub fn lines_said() -> u64 {
    LINES.load(Ordering::Relaxed)
}

/// Adds a line to [`lines_said`] that is about to be written, but not by [`say`].
pub fn count_line() {
    if let Some(before) = BEFORE.get() {
        before();
    }
    LINES.fetch_add(1, Ordering::Relaxed);
}

/// Prints one line for the user on standard error. Write errors are ignored: tracing continues if
/// standard error is closed.
pub fn say(message: impl Display) {
    // It may contain names of files and programs.
    let message = printable(&message.to_string());
    count_line();
    let _ = writeln!(io::stderr(), "gpuprobe: {message}");
}
