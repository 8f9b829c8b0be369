//! A limit on the memory that is kept of all processes.

/// Bytes that are kept, and how many there may be.
#[derive(Debug)]
pub struct ByteLimit {
    limit: usize,
    total: usize,
}

impl ByteLimit {
    /// Nothing yet, of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, total: 0 }
    }

    /// Whether there may be more.
    pub fn has_room(&self) -> bool {
        self.total < self.limit
    }

    /// Bytes that are kept.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Records that what took `before` bytes takes `now`.
    pub fn change(&mut self, before: usize, now: usize) {
        self.total = self.total.saturating_sub(before).saturating_add(now);
    }
}

#[cfg(test)]
mod tests {
    use super::ByteLimit;

    #[test]
    fn there_is_room_below_the_limit() {
        let mut bytes = ByteLimit::new(100);
        bytes.change(0, 99);
        assert!(bytes.has_room());
        bytes.change(49, 50);
        assert!(!bytes.has_room() && bytes.total() == 100);
        bytes.change(100, 0);
        assert!(bytes.has_room());
    }
}
