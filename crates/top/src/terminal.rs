//! The terminal: raw mode, the alternate screen, and frames that are written whole.
//!
//! A terminal may take no output for hours (Ctrl-S). Only the thread of the screen waits for it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::termios::{FlowArg, InputFlags, SetArg, tcflow, tcgetattr, tcsetattr};
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::force_color_output;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// How long a terminal that takes no output is waited for at the end.
const LEAVE_WITHIN: Duration = Duration::from_millis(300);

/// The terminal, until it is as before. Standard output itself would stay locked while the terminal is stopped.
static OURS: Mutex<Option<File>> = Mutex::new(None);

fn ours() -> MutexGuard<'static, Option<File>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A frame, which is written whole, or not at all once the terminal is as before.
#[derive(Debug, Default)]
pub(crate) struct Frames(Vec<u8>);

impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.0);
        ours()
            .as_mut()
            .map_or(Ok(()), |terminal| terminal.write_all(&frame))
    }
}

/// Takes the terminal of standard input and output over; a panic of any thread gives it back.
///
/// # Errors
/// Returns an error if there is none, or if it cannot be set up.
pub(crate) fn open() -> Result<()> {
    let set_up = || -> io::Result<()> {
        let before = tcgetattr(io::stdin())?;
        *ours() = Some(io::stdout().as_fd().try_clone_to_owned()?.into());
        enable_raw_mode()?;
        // Ctrl-S and Ctrl-Q stop and resume the output as everywhere.
        let mut raw = tcgetattr(io::stdin())?;
        raw.input_flags |= before.input_flags & (InputFlags::IXON | InputFlags::IXANY);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &raw)?;
        Ok(())
    };
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        before(info);
    }));
    set_up().context("cannot set up the terminal")
}

/// The alternate screen.
pub(crate) fn enter() -> io::Result<()> {
    // Whether there are colours is decided elsewhere.
    force_color_output(true);
    let mut frame = Frames::default();
    execute!(frame, EnterAlternateScreen, Hide)
}

/// Sets the terminal back to how it was. A thread of its own writes to it, and is not waited for if it is stopped.
pub(crate) fn restore() {
    // What Ctrl-S has stopped is resumed only after it was stopped this way, too.
    let _ = tcflow(io::stdout(), FlowArg::TCOOFF);
    let _ = tcflow(io::stdout(), FlowArg::TCOON);
    let (done, left) = mpsc::channel::<()>();
    let leave = move || {
        let _done = done;
        if let Some(mut terminal) = ours().take() {
            let _ = execute!(terminal, Show, LeaveAlternateScreen);
        }
    };
    if thread::Builder::new().spawn(leave).is_ok() {
        let _ = left.recv_timeout(LEAVE_WITHIN);
    }
    let _ = disable_raw_mode();
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use nix::pty::openpty;
    use nix::sys::termios::LocalFlags;

    use super::*;

    /// Bytes of a frame, more than a terminal takes at once.
    const FRAME: usize = 1 << 16;
    /// Set where the test runs itself on a terminal.
    const ON_TERMINAL: &str = "GPUPROBE_TOP_ON_TERMINAL";

    #[test]
    fn a_panic_restores_a_terminal_even_if_it_is_stopped() {
        if std::env::var_os(ON_TERMINAL).is_some() {
            panic_while_stopped();
        }
        let pty = openpty(None, None).unwrap();
        let terminal = || Stdio::from(pty.slave.try_clone().unwrap());
        let before = tcgetattr(&pty.slave).unwrap();
        let test = "terminal::tests::a_panic_restores_a_terminal_even_if_it_is_stopped";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env(ON_TERMINAL, "1")
            .stdin(terminal())
            .stdout(terminal())
            .spawn()
            .unwrap();
        let (mut text, mut buffer) = (String::new(), [0; 1 << 12]);
        let mut shown = File::from(pty.master);
        while !text.contains("\x1b[?1049l") {
            let count = shown.read(&mut buffer).unwrap();
            text += &String::from_utf8_lossy(&buffer[..count]);
        }
        let (_, screen) = text.split_once("\x1b[?1049h").unwrap();
        let (screen, _) = screen.split_once("\x1b[?1049l").unwrap();
        assert_eq!(screen.matches('y').count(), FRAME);
        assert!(!child.wait().unwrap().success());
        assert_eq!(tcgetattr(&pty.slave).unwrap(), before);
    }

    fn panic_while_stopped() -> ! {
        open().unwrap();
        enter().unwrap();
        let raw = tcgetattr(io::stdin()).unwrap();
        assert!(!raw.local_flags.contains(LocalFlags::ICANON));
        // As Ctrl-S does.
        tcflow(io::stdout(), FlowArg::TCOOFF).unwrap();
        let stopped = thread::spawn(|| {
            let mut frames = Frames("y".repeat(FRAME).into());
            frames.flush().unwrap();
        });
        while OURS.try_lock().is_ok() {
            thread::yield_now();
        }
        let panicked = thread::spawn(|| panic!("as expected")).join();
        stopped.join().unwrap();
        assert!(panicked.is_ok(), "the end");
        std::process::abort();
    }
}
