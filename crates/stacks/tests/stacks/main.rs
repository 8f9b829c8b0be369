//! Unwinding and symbolising stacks of real processes. Root is not needed.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contexts;
#[path = "../../../../tests/untrusted/corpus.rs"]
mod corpus;
mod debug_info;
mod harness;
mod malformed;
mod paths;
mod python_lines;
#[path = "../../../../tests/pythons/mod.rs"]
mod pythons;
mod replaced;
