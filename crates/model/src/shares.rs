//! Memory that the processes of all users share: nobody fills ours.

use std::collections::HashMap;

/// Bytes that are kept of the processes of each user, of which one user has half at most. Processes of
/// unknown users (`None`) count as one user's.
#[derive(Debug)]
pub struct ByteShares {
    limit: usize,
    total: usize,
    by_user: HashMap<Option<u32>, usize>,
}

impl ByteShares {
    /// Shares of `limit` bytes.
    pub fn of(limit: usize) -> Self {
        Self {
            limit,
            total: 0,
            by_user: HashMap::new(),
        }
    }

    /// Whether `user` may have more.
    pub fn has_room(&self, user: Option<u32>) -> bool {
        let used = self.by_user.get(&user).copied().unwrap_or_default();
        used < self.limit / 2 && self.total < self.limit
    }

    /// Bytes of all users.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Records that what is kept of a process of `user` took `before` bytes, and takes `now`.
    pub fn change(&mut self, user: Option<u32>, before: usize, now: usize) {
        let changed = |sum: usize| sum.saturating_sub(before).saturating_add(now);
        self.total = changed(self.total);
        let used = self.by_user.entry(user).or_default();
        *used = changed(*used);
        if *used == 0 {
            self.by_user.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ByteShares;

    #[test]
    fn a_user_has_half_and_all_users_have_the_limit() {
        let mut shares = ByteShares::of(100);
        shares.change(Some(1), 0, 49);
        assert!(shares.has_room(Some(1)));
        shares.change(Some(1), 49, 50);
        assert!(!shares.has_room(Some(1)));
        assert!(shares.has_room(Some(2)) && shares.has_room(None));
        shares.change(Some(2), 0, 30);
        shares.change(None, 0, 20);
        assert!(!shares.has_room(Some(3)));
        shares.change(Some(1), 50, 0);
        assert!(shares.has_room(Some(1)) && shares.has_room(Some(3)));
        assert_eq!(shares.total(), 50);
    }
}
