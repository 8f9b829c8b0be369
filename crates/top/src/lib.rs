//! The screens of `gpuprobe top`: a view of the report that can be walked through.
//!
//! May depend on `report` and all below it. Provides: [`TopScreen::start`] takes the terminal over and returns the
//! [`Source`] through which a session, or a replay, passes reports ([`Update`]) and receives what the user wants
//! ([`Request`]). The thread of the screen holds up nothing: a terminal that takes no output is drawn later, and of
//! the reports that it misses the newest is kept.

mod ansi;
mod feed;
mod keys;
mod replay;
mod screen;
mod series;
mod terminal;
mod view;

pub use feed::{Messenger, PlaybackState, Request, ScreenNotice, Source, Update, Verdicts};
pub use replay::{TopReplayConfig, replay};
pub use screen::TopScreen;
pub use view::ScreenConfig;
