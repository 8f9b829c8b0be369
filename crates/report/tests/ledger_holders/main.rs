//! The ledger compared with simple oracles, over random interleavings of calls that hold memory by
//! other means than plain allocations. Each oracle models the observed behaviour of the driver; the
//! ledger sees calls only, some of them long after the driver has acted.

#![allow(missing_docs, clippy::unwrap_used)]

mod contexts;
mod graphs;
mod harness;
mod pools;
mod spaces;
mod virtual_memory;
