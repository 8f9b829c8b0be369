//! The threads that own the terminal: one reads keys, one draws, and neither is ever waited for.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuprobe_os::privileges::keep_only_here;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::feed::{Feed, Request, ScreenNotice};
use crate::terminal::{Frames, enter, open, restore};
use crate::view::{ScreenConfig, TopView};

/// Interval at which is seen that the terminal was closed, or has another size.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The screens of `gpuprobe top`. Dropping them restores the terminal.
#[derive(Debug)]
pub struct TopScreen {
    /// Takes what is shown.
    pub feed: Feed,
    requests: Receiver<Request>,
}

impl TopScreen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// Returns an error if there is no terminal, or it cannot be set up.
    pub fn start(config: ScreenConfig) -> Result<Self> {
        let (sender, requests) = mpsc::channel();
        let feed = Feed::default();
        let screen = Self {
            feed: feed.clone(),
            requests,
        };
        open()?;
        let run = move || {
            keep_only_here(&[]);
            let (typed, asked) = (feed.clone(), sender.clone());
            let reader = thread::Builder::new().name("gpuprobe-keys".to_owned());
            let read = reader.spawn(move || read_events(&typed, &asked));
            // An error of the terminal means that it was closed.
            let _ = read.and_then(|_| draw(config, &feed, &sender));
            let _ = sender.send(Request::Quit);
        };
        let thread = thread::Builder::new().name("gpuprobe-screen".to_owned());
        thread
            .spawn(run)
            .context("cannot start the thread of the screen")?;
        Ok(screen)
    }

    /// The next request of the user within `at_most`; [`Request::Quit`] once the screen has ended.
    pub fn wait(&self, at_most: Duration) -> Option<Request> {
        match self.requests.recv_timeout(at_most) {
            Err(RecvTimeoutError::Timeout) => None,
            request => Some(request.unwrap_or(Request::Quit)),
        }
    }
}

impl Drop for TopScreen {
    fn drop(&mut self) {
        self.feed.put(|slot| slot.is_closing = true);
        restore();
    }
}

/// Passes on what the user types. Ctrl-C ends a screen that waits for its terminal, too.
fn read_events(feed: &Feed, requests: &Sender<Request>) {
    while let Ok(event) = event::read() {
        if event == Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)) {
            let _ = requests.send(Request::Quit);
        }
        feed.put(|slot| slot.events.push(event));
    }
}

/// Draws whatever changes, until the end.
fn draw(config: ScreenConfig, feed: &Feed, requests: &Sender<Request>) -> io::Result<()> {
    enter()?;
    let mut view = TopView::new(config);
    let mut area = area()?;
    let viewport = Viewport::Fixed(area);
    let backend = CrosstermBackend::new(Frames::default());
    // When dropped, it would write to a terminal that may be closed.
    let terminal = Terminal::with_options(backend, TerminalOptions { viewport })?;
    let mut terminal = ManuallyDrop::new(terminal);
    loop {
        if area != self::area()? {
            area = self::area()?;
            terminal.resize(area)?;
        }
        terminal.draw(|frame| view.draw(frame))?;
        let fetched = feed.fetch(LOOK_EVERY);
        if fetched.is_closing {
            return Ok(());
        }
        if let Some(update) = fetched.update {
            view.update(update);
        }
        for notice in fetched.notices {
            match notice {
                ScreenNotice::Message(text) => view.tell(text),
                ScreenNotice::Explained(pid, explain) => view.explained(pid, &explain),
            }
        }
        for request in fetched.events.iter().flat_map(|event| view.event(event)) {
            // A source that has ended does not need it.
            let _ = requests.send(request);
        }
    }
}

/// The whole terminal; an error once it was closed.
fn area() -> io::Result<Rect> {
    nix::sys::termios::tcgetattr(io::stdout())?;
    let (columns, rows) = gpuprobe_os::terminal::size(io::stdout()).unwrap_or((80, 24));
    Ok(Rect::new(0, 0, columns as u16, rows as u16))
}
