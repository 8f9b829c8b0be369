//! The screens of `gpuprobe top`: a view of the report that can be walked through.
//!
//! For: a run or a replay that is watched; its threads hold up nothing, and show the newest report when they can.
//! May use: `report` and all below it.
//! Gives: [`TopScreen::start`], which takes reports ([`Update`]) and gives the user's wishes ([`Request`]).

mod feed;
mod replay;
mod screen;
mod terminal;
mod view;

pub use feed::{Feed, PlaybackState, Request, ScreenNotice, Update};
pub use gpuprobe_report::verdict::Verdicts;
pub use replay::{TopReplayConfig, replay};
pub use screen::TopScreen;
pub use view::ScreenConfig;
