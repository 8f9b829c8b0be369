//! How much is kept of the call stacks of each user: nobody fills our memory.

use std::collections::HashMap;

/// Bytes that the stacks of all processes take, of which a user has half at most: some forty thousand
/// stacks of forty functions. Calls with further ones have none, and are counted.
const MOST_BYTES: usize = 96 << 20;

/// Whose the stacks of a process are; none if nobody knows.
pub(super) type User = Option<u32>;

/// Memory of the stored stacks, by user.
#[derive(Debug)]
pub(super) struct Shares {
    most: usize,
    all: usize,
    by_user: HashMap<User, usize>,
}

impl Default for Shares {
    fn default() -> Self {
        Self::of(MOST_BYTES)
    }
}

impl Shares {
    /// With so many bytes for all together.
    pub(super) fn of(most: usize) -> Self {
        Self {
            most,
            all: 0,
            by_user: HashMap::new(),
        }
    }

    /// Whether `user` may have more.
    pub(super) fn has_room(&self, user: User) -> bool {
        let his = self.by_user.get(&user).copied().unwrap_or_default();
        his < self.most / 2 && self.all < self.most
    }

    /// Bytes of all users.
    #[cfg(test)]
    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// Records that the stacks of a process of `user` took `before` bytes, and take `now`.
    pub(super) fn change(&mut self, user: User, before: usize, now: usize) {
        let changed = |sum: usize| sum.saturating_sub(before).saturating_add(now);
        self.all = changed(self.all);
        let his = self.by_user.entry(user).or_default();
        *his = changed(*his);
        if *his == 0 {
            self.by_user.remove(&user);
        }
    }
}
