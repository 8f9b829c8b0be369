//! Batches become activities.

use super::Batch;
use crate::probe::abi::RawBatch;

/// Decodes the batches of all processes, in the order in which each process made them.
#[derive(Debug, Default)]
pub struct Decoder {}

impl Decoder {
    /// Decodes one batch of a process.
    pub fn decode(&mut self, raw: &RawBatch, _batch: &[u8]) -> Batch {
        Batch {
            pid: raw.tgid,
            process: raw.process,
            activities: Vec::new(),
        }
    }
}
