//! Bytes and number of allocations.

use serde::Serialize;

/// Bytes and number of allocations; sums saturate, because traced processes choose the sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Sum of the sizes, bytes.
    pub bytes: u64,
    /// Number of the allocations.
    pub allocations: u64,
}

impl Total {
    /// Adds an allocation of `bytes`.
    pub fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.allocations += 1;
    }

    /// Adds the bytes and allocations of `other`.
    pub fn merge(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.allocations = self.allocations.saturating_add(other.allocations);
    }

    /// Removes an allocation of `bytes`, down to 0.
    pub fn subtract(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.allocations = self.allocations.saturating_sub(1);
    }
}
