//! The screens of `gpuprobe top`: a view of the report that can be walked through.
//!
//! For: a run or a replay that is watched; its thread holds up nothing, and shows the newest report when it can.
//! May use: `report` and all below it.
//! Gives: [`TopScreen::start`], whose [`Source`] takes reports ([`Update`]) and gives the user's wishes ([`Request`]).

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
