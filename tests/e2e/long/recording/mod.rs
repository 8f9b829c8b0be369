//! Recordings with limits and losses, of racing threads, and with other ways to attach.

mod limits;
mod losses;
mod races;
