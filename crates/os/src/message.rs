//! Messages on standard error.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpuprobe_model::text::printable;

static LINES: AtomicU64 = AtomicU64::new(0);

/// Called before each line.
static BEFORE: Mutex<Vec<Box<dyn Fn() + Send>>> = Mutex::new(Vec::new());

/// Has `hook` called before each line on standard error, to clear what is drawn there. Hooks remain for the life of the
/// program; they must not print lines themselves.
pub fn before_lines(hook: impl Fn() + Send + 'static) {
    let mut hooks = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    hooks.push(Box::new(hook));
}

/// Number of lines written to standard error so far; code that redraws a terminal checks it for
/// other output.
pub fn lines_said() -> u64 {
    LINES.load(Ordering::Relaxed)
}

/// Lines that are kept while standard error is not to be written to; further ones are counted.
const MAX_KEPT: usize = 1000;

/// Lines that do not go to standard error for now.
struct Diverted {
    take: Box<dyn Fn(&str) + Send>,
    kept: Vec<String>,
    dropped: u64,
}

static DIVERTED: Mutex<Option<Diverted>> = Mutex::new(None);

fn diverted() -> MutexGuard<'static, Option<Diverted>> {
    DIVERTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it exists, lines for standard error are kept; then they are written.
#[derive(Debug)]
pub struct Diversion(());

/// Passes each line to `take` instead of standard error until the result is dropped, which writes all of them
/// there. `take` must not print lines itself.
pub fn divert(take: impl Fn(&str) + Send + 'static) -> Diversion {
    *diverted() = Some(Diverted {
        take: Box::new(take),
        kept: Vec::new(),
        dropped: 0,
    });
    Diversion(())
}

impl Drop for Diversion {
    fn drop(&mut self) {
        let Some(before) = diverted().take() else {
            return;
        };
        for line in &before.kept {
            write_line(line);
        }
        if before.dropped > 0 {
            say(format_args!("{} further messages dropped", before.dropped));
        }
    }
}

/// `line` without the numbers that Rust adds to errors of the system: ` (os error 2)`.
fn without_numbers(line: &str) -> String {
    let mut parts = line.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.filter_map(|part| Some(part.split_once(')')?.1));
    rest.fold(first, |said, rest| said + rest)
}

/// Writes a line to standard error, or keeps it.
fn write_line(line: &str) {
    let line = &*without_numbers(line);
    let hooks = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    hooks.iter().for_each(|before| before());
    drop(hooks);
    LINES.fetch_add(1, Ordering::Relaxed);
    if let Some(diverted) = &mut *diverted() {
        (diverted.take)(line);
        match diverted.kept.len() < MAX_KEPT {
            true => diverted.kept.push(line.to_owned()),
            false => diverted.dropped += 1,
        }
    } else {
        // At once: a traced program may write to the same pipe.
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    }
}

/// Standard error for a log whose every write is one line.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOutput;

impl Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        write_line(&printable(text.trim_end_matches('\n')));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints one line for the user on standard error. Write errors are ignored: tracing continues if
/// standard error is closed.
pub fn say(message: impl Display) {
    // It may contain names of files and programs.
    let message = printable(&message.to_string());
    write_line(&format!("gpuprobe: {message}"));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn diverted_lines_are_taken_and_kept() {
        let taken: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = Arc::clone(&taken);
        let diversion = divert(move |line| sink.lock().unwrap().push(line.to_owned()));
        say("one (os error 2): (os error 13)");
        let names = " WARN \u{1b}[2J\r\n\u{e}\u{202e}\n";
        LogOutput.write_all(names.as_bytes()).unwrap();
        for _ in 0..MAX_KEPT {
            say("more");
        }
        let line = r" WARN \u{1b}[2J\r\n\u{e}\u{202e}";
        assert_eq!(taken.lock().unwrap()[..2], ["gpuprobe: one:", line]);
        let (kept, dropped) = {
            let diverted = diverted();
            let diverted = diverted.as_ref().unwrap();
            (diverted.kept.len(), diverted.dropped)
        };
        assert_eq!((kept, dropped), (MAX_KEPT, 2));
        drop(diversion);
        assert!(diverted().is_none());
    }
}
