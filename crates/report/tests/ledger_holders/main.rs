//! Memory of pools: the ledger compared with a simple oracle, over random interleavings of calls, some of which are seen
//! long after the driver has acted. `crates/engine/tests/streams` has all other memory.

#![allow(missing_docs, clippy::unwrap_used)]

mod harness;
mod pools;
