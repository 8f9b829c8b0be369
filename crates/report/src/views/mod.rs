//! Formats: each writes values that the rest of this crate built, and asks nobody else.

pub(crate) mod csv;
pub mod export;
pub mod html;
pub(crate) mod json;
pub mod metrics;
pub mod plot;
pub mod profile;
pub mod report;
pub(crate) mod tables;
pub(crate) mod text;
mod usage;
