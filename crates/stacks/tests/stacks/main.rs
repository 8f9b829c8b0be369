//! Unwinding and symbolising stacks of real processes. Root is not needed.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contexts;
mod debug_info;
mod harness;
mod paths;
mod python_lines;
#[path = "../../../../tests/pythons/mod.rs"]
mod pythons;
mod replaced;
