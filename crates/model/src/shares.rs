//! Memory that the processes of all users share: nobody fills ours.

use std::collections::HashMap;

/// How much memory there is for more to be kept of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryRoom {
    /// Within the limits of each kind.
    #[default]
    Ample,
    /// For users of whom little is kept: [`Self::LITTLE`].
    Little,
    /// For nobody.
    None,
}

impl MemoryRoom {
    /// The part of a limit up to which a user has room where there is little.
    pub const LITTLE: usize = 64;

    /// Part of `limit` that all users may have together, where it is not divided among them.
    pub fn of_all(self, limit: usize) -> usize {
        match self {
            Self::Ample => limit,
            Self::Little | Self::None => limit / Self::LITTLE,
        }
    }

    /// Share of a user in `limit`.
    pub fn of_user(self, limit: usize) -> usize {
        match self {
            Self::Ample => limit / 2,
            Self::Little => limit / Self::LITTLE,
            Self::None => 0,
        }
    }
}

/// Bytes that are kept of the processes of each user, of which one user has half at most. Processes of
/// unknown users (`None`) count as one user's.
#[derive(Debug)]
pub struct ByteShares {
    limit: usize,
    room: MemoryRoom,
    total: usize,
    by_user: HashMap<Option<u32>, usize>,
}

impl ByteShares {
    /// Shares of `limit` bytes.
    pub fn of(limit: usize) -> Self {
        Self {
            limit,
            room: MemoryRoom::default(),
            total: 0,
            by_user: HashMap::new(),
        }
    }

    /// Whether `user` may have more.
    pub fn has_room(&self, user: Option<u32>) -> bool {
        let used = self.by_user.get(&user).copied().unwrap_or_default();
        used < self.room.of_user(self.limit) && self.total < self.limit
    }

    /// From now on there is so much room, whatever the limit.
    pub fn set_room(&mut self, room: MemoryRoom) {
        self.room = room;
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
    use super::{ByteShares, MemoryRoom};

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

    #[test]
    fn users_with_little_have_room_where_there_is_little_and_none_where_there_is_none() {
        let mut shares = ByteShares::of(6400);
        shares.change(Some(1), 0, 100);
        shares.change(Some(2), 0, 99);
        let mut with = |room| {
            shares.set_room(room);
            [1, 2].map(|user| shares.has_room(Some(user)))
        };
        assert_eq!(with(MemoryRoom::Little), [false, true]);
        assert_eq!(with(MemoryRoom::None), [false, false]);
        assert_eq!(with(MemoryRoom::Ample), [true, true]);
    }
}
