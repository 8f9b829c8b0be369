//! Recordings: SQLite files with the tables and columns of an Nsight Systems export.
//!
//! A recording of ours and an export of `nsys` are read by the same code ([`Database`]); what nsys
//! has no place for stands in tables named `GPUPROBE_*`. Reading never changes a file.

pub mod chains;
pub mod database;
pub mod enums;
pub mod ids;
pub mod kinds;
pub mod row;
pub mod session;

pub use chains::{Frame, Resolver};
pub use database::Database;
pub use session::Session;
