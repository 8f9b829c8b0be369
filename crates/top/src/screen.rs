//! The thread that owns the terminal: reads keys, draws, and never holds up anything else.

use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::ansi::Ansi;
use crate::feed::{Request, ScreenInbox, ScreenNotice, Source, feed};
use crate::keys::{Key, KeyDecoder};
use crate::terminal::{Input, Terminal, restore, restore_on_panic};
use crate::view::{ScreenConfig, TopView};

/// Interval at which the size of the terminal is read.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time for the rest of an escape sequence to arrive.
const SEQUENCE_WITHIN: Duration = Duration::from_millis(50);
/// How long the end of the thread is waited for.
const END_WITHIN: Duration = Duration::from_secs(1);

/// The screens of `gpuprobe top`, drawn by a thread of their own.
#[derive(Debug)]
pub struct TopScreen {
    /// The end for reports and requests.
    pub source: Source,
    thread: Option<JoinHandle<()>>,
}

impl TopScreen {
    /// Takes the terminal over. `prepare` is run on the thread of the screen first.
    ///
    /// # Errors
    /// Returns an error if there is no terminal, or it cannot be set up.
    pub fn start(config: ScreenConfig, prepare: impl FnOnce() + Send + 'static) -> Result<Self> {
        let (source, sink) = feed()?;
        let terminal = Terminal::open(config.mouse)?;
        restore_on_panic();
        let run = move || {
            prepare();
            ScreenLoop::new(config, terminal, sink).run();
        };
        let thread = thread::Builder::new()
            .name("gpuprobe-screen".to_owned())
            .spawn(run)
            .context("cannot start the thread of the screen")
            .inspect_err(|_| restore())?;
        Ok(Self {
            source,
            thread: Some(thread),
        })
    }

    /// Ends the screen and restores the terminal; does nothing if that was done.
    pub fn close(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.source.close();
        let end = Instant::now() + END_WITHIN;
        while !thread.is_finished() && Instant::now() < end {
            thread::park_timeout(Duration::from_millis(5));
        }
        restore();
    }
}

impl Drop for TopScreen {
    fn drop(&mut self) {
        self.close();
    }
}

struct ScreenLoop {
    terminal: Terminal,
    sink: ScreenInbox,
    view: TopView,
    drawn: ratatui_core::terminal::Terminal<Ansi>,
    keys: KeyDecoder,
    /// The view has changed since it was drawn.
    is_due: bool,
}

impl ScreenLoop {
    fn new(config: ScreenConfig, terminal: Terminal, sink: ScreenInbox) -> Self {
        let size = terminal.size();
        let Ok(drawn) = ratatui_core::terminal::Terminal::new(Ansi::new(size));
        Self {
            terminal,
            sink,
            view: TopView::new(config),
            drawn,
            keys: KeyDecoder::default(),
            is_due: true,
        }
    }

    fn run(mut self) {
        loop {
            self.draw();
            if !self.wait() || !self.read() || !self.fetch() {
                return;
            }
        }
    }

    /// Draws, if anything has changed and the terminal has taken what was drawn before.
    fn draw(&mut self) {
        let size = self.terminal.size();
        if self.drawn.backend().size != size {
            self.drawn.backend_mut().size = size;
            self.is_due = true;
        }
        if !self.is_due || !self.terminal.is_idle() {
            return;
        }
        let view = &mut self.view;
        let Ok(_) = self.drawn.draw(|frame| view.draw(frame.buffer_mut()));
        let out = std::mem::take(&mut self.drawn.backend_mut().out);
        self.terminal.send(&out);
        self.is_due = false;
    }

    /// Waits for something to do; false if that fails.
    fn wait(&mut self) -> bool {
        let mut wanted = PollFlags::POLLIN;
        wanted.set(PollFlags::POLLOUT, !self.terminal.is_idle());
        let mut fds = [
            PollFd::new(self.terminal.fd(), wanted),
            PollFd::new(self.sink.woken.as_fd(), PollFlags::POLLIN),
        ];
        let at_most = match self.keys.is_waiting() {
            true => SEQUENCE_WITHIN,
            false => LOOK_EVERY,
        };
        let at_most = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::ZERO);
        match poll(&mut fds, at_most) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return false,
        }
        self.terminal.flush();
        true
    }

    /// Handles what was typed; false at the end.
    fn read(&mut self) -> bool {
        let bytes = match self.terminal.read() {
            Input::Bytes(bytes) => bytes,
            Input::Closed => return false,
        };
        let mut keys = self.keys.decode(&bytes);
        if bytes.is_empty() {
            keys.extend(self.keys.flush());
        }
        for key in keys {
            self.is_due = true;
            let requests = self.view.key(key);
            let is_end = key == Key::Ctrl('c') || requests.contains(&Request::Quit);
            requests
                .into_iter()
                .for_each(|request| self.sink.ask(request));
            if is_end {
                return false;
            }
        }
        true
    }

    /// Takes what the source has given; false at the end.
    fn fetch(&mut self) -> bool {
        let fetched = self.sink.fetch();
        if let Some(update) = fetched.update {
            self.is_due |= self.view.update(update);
        }
        for notice in fetched.notices {
            self.is_due = true;
            match notice {
                ScreenNotice::Message(text) => self.view.tell(text),
                ScreenNotice::Explained(pid, explain) => self.view.explained(pid, &explain),
                ScreenNotice::Source(excerpt) => self.view.sources.add(excerpt),
            }
        }
        for place in self.view.wanted_sources() {
            self.sink.ask(Request::Source(place));
        }
        !fetched.is_closing
    }
}
