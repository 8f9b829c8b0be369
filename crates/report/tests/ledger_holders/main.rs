//! The ledger against simple oracles, over random interleavings of the calls by which memory is
//! held otherwise than by plain allocations. Each oracle is what the driver was seen to do; the
//! ledger is told of calls only, some of them long after the driver has acted.

#![allow(missing_docs, clippy::unwrap_used)]

mod contexts;
mod graphs;
mod pools;
mod spaces;
mod virtual_memory;
mod world;
