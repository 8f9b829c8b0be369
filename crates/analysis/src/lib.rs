//! Files: recordings and Nsight Systems exports, played through the engine, and what is made of them.
//!
//! For: whoever shows a file; formats are in `views`.
//! May use: all lower crates, `report` first.
//! Gives: [`File`], opened once, which answers with reports, profiles and differences; [`chart`], [`page`],
//! [`snapshot`], [`trace_rows`], [`event_rows`] for formats of their own; [`playback`].

pub mod chart;
pub mod diff;
pub mod event_rows;
mod file;
mod filter;
pub mod page;
pub mod playback;
mod played;
mod processes;
mod range;
mod run;
pub mod snapshot;
pub mod timeline;
pub mod trace_rows;
mod work;

pub(crate) use file::Observer;
pub use file::{Analysis, File, NEWEST};
pub use filter::{Filter, Moment, NoMatch};
pub use played::{Listener, MemoryChange, Played};
pub use range::first_ns;
pub use run::describe_run;
