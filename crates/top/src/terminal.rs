//! The terminal: raw mode, the alternate screen, and output that never waits for it.
//!
//! A terminal may take no output for hours (Ctrl-S). It is opened a second time, so that writing to it does not block
//! while the descriptors shared with other programs stay as they are.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::panic;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{
    FlowArg, InputFlags, SetArg, Termios, cfmakeraw, tcflow, tcgetattr, tcsetattr,
};
use ratatui_core::layout::Size;

/// The alternate screen, without a cursor, cleared.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[0m\x1b[2J";
/// Has the terminal report clicks and the wheel, with decimal places.
const MOUSE: &str = "\x1b[?1000h\x1b[?1006h";
/// Ends a sequence that was cut short; then the opposite.
const LEAVE: &[u8] = b"\x18\x1b[?1006l\x1b[?1000l\x1b[0m\x1b[?25h\x1b[?1049l";
/// How long a terminal that takes no output is waited for at the end.
const LEAVE_WITHIN: Duration = Duration::from_millis(300);

/// The terminal in use, and how it was before. Restored by whoever takes it: the end, or a panic.
static IN_USE: Mutex<Option<(File, Termios)>> = Mutex::new(None);

/// A terminal in raw mode.
#[derive(Debug)]
pub(crate) struct Terminal {
    file: File,
    pending: Vec<u8>,
}

/// Result of reading keys.
pub(crate) enum Input {
    /// Bytes, perhaps none.
    Bytes(Vec<u8>),
    /// The terminal was closed.
    Closed,
}

impl Terminal {
    /// Opens the terminal of standard output, or else the controlling one, and takes it over, with the mouse if asked.
    ///
    /// # Errors
    /// Returns an error if there is none, or if it cannot be set up.
    pub(crate) fn open(mouse: bool) -> Result<Self> {
        let mut terminal = Self::take(open().context("cannot open the terminal")?)?;
        if mouse {
            terminal.pending.extend_from_slice(MOUSE.as_bytes());
        }
        Ok(terminal)
    }

    /// Takes over the terminal `file`.
    fn take(file: File) -> Result<Self> {
        let before = tcgetattr(&file).context("cannot read the terminal's settings")?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        // Ctrl-S and Ctrl-Q stop and resume the output as everywhere.
        raw.input_flags |= before.input_flags & (InputFlags::IXON | InputFlags::IXANY);
        let ours = file.try_clone().context("cannot open the terminal")?;
        *in_use() = Some((ours, before));
        tcsetattr(&file, SetArg::TCSANOW, &raw).context("cannot set up the terminal")?;
        Ok(Self {
            file,
            pending: ENTER.into(),
        })
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> Size {
        let (columns, rows) = gpuprobe_os::terminal::size(&self.file).unwrap_or((80, 24));
        let fit = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).max(1);
        Size::new(fit(columns), fit(rows))
    }

    /// Bytes that the user has typed.
    pub(crate) fn read(&mut self) -> Input {
        let mut buffer = [0; 1024];
        match self.file.read(&mut buffer) {
            Ok(0) => Input::Closed,
            Ok(count) => Input::Bytes(buffer[..count].to_vec()),
            Err(error) if is_passing(&error) => Input::Bytes(Vec::new()),
            Err(_) => Input::Closed,
        }
    }

    /// Whether everything has been sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Sends `text` after what is pending, as far as the terminal takes it now.
    pub(crate) fn send(&mut self, text: &str) {
        self.pending.extend_from_slice(text.as_bytes());
        self.flush();
    }

    /// Sends what is pending, as far as the terminal takes it now.
    pub(crate) fn flush(&mut self) {
        while !self.pending.is_empty() {
            match self.file.write(&self.pending) {
                Ok(count @ 1..) => drop(self.pending.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
    }

    /// The descriptor, to wait for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Has a panic of any thread restore the terminal before it is reported there.
pub(crate) fn restore_on_panic() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        before(info);
    }));
}

/// Sets the terminal back to how it was, if it is in use.
pub(crate) fn restore() {
    let Some((mut file, before)) = in_use().take() else {
        return;
    };
    // A stopped terminal takes nothing. What Ctrl-S has stopped is resumed only after it was stopped this way, too.
    let _ = tcflow(&file, FlowArg::TCOOFF);
    let _ = tcflow(&file, FlowArg::TCOON);
    let end = Instant::now() + LEAVE_WITHIN;
    let mut left = LEAVE;
    while !left.is_empty() && Instant::now() < end {
        match file.write(left) {
            Ok(count) => left = &left[count..],
            Err(error) if is_passing(&error) => wait_for_room(&file, end),
            Err(_) => break,
        }
    }
    let _ = tcsetattr(&file, SetArg::TCSANOW, &before);
}

fn wait_for_room(file: &File, end: Instant) {
    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    let left = end.saturating_duration_since(Instant::now());
    let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
    let _ = poll(&mut fds, left);
}

fn in_use() -> std::sync::MutexGuard<'static, Option<(File, Termios)>> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn open() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
    let own = io::stdout().is_terminal();
    let opened = own.then(|| options.open("/proc/self/fd/1"));
    // Under sudo -u, the terminal may belong to another user.
    match opened {
        Some(Ok(file)) => Ok(file),
        _ => options.open("/dev/tty").map_err(|error| {
            match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENXIO) => io::Error::other("there is none"),
                _ => error,
            }
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::thread;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use nix::pty::openpty;
    use nix::sys::termios::LocalFlags;

    use super::*;

    #[test]
    fn a_panic_restores_a_terminal_even_if_it_is_stopped() {
        let pty = openpty(None, None).unwrap();
        let mut shown = File::from(pty.master);
        let slave = File::from(pty.slave);
        fcntl(&slave, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let mut terminal = Terminal::take(slave.try_clone().unwrap()).unwrap();
        terminal.send("x");
        assert!(terminal.is_idle());
        let raw = tcgetattr(&slave).unwrap();
        assert!(!raw.local_flags.contains(LocalFlags::ICANON));
        // As Ctrl-S does; what does not fit is kept.
        tcflow(&slave, FlowArg::TCOOFF).unwrap();
        terminal.send(&"y".repeat(1 << 20));
        assert!(!terminal.is_idle());
        restore_on_panic();
        let panicked = thread::spawn(|| panic!("as expected")).join();
        drop(panic::take_hook());
        assert!(panicked.is_err());
        assert_eq!(tcgetattr(&slave).unwrap().local_flags, before.local_flags);
        let mut read = [0; 1 << 16];
        let count = shown.read(&mut read).unwrap();
        let text = String::from_utf8_lossy(&read[..count]);
        assert!(text.starts_with(&format!("{ENTER}x")), "{text:?}");
        assert!(text.contains("\x1b[?1049l"), "{text:?}");
    }
}
