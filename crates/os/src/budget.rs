//! How much is read of what the processes of a user have mapped.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crate::proc::{Mappings, Status};

/// In this time, what is read is counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Bytes of lists of mappings that are read for a user in that time, and a last list: a thousand
/// processes of the usual size, or the half of one that has as many mappings, with names as long, as
/// it can. The kernel takes about 10 ns for each byte.
const MAX_BYTES: u64 = 32 << 20;

/// Reads the mappings of processes, of which a user may have many with many mappings each, without
/// having the others wait.
#[derive(Debug, Default)]
pub struct MappingBudget {
    since: Option<Instant>,
    spent: HashMap<u32, u64>,
}

impl MappingBudget {
    /// The mappings of process `pid`; none if too much was read for its user lately.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub fn read(&mut self, pid: u32) -> io::Result<Option<Mappings>> {
        let status = Status::of(pid)?;
        let uid = status.field("Uid").and_then(|ids| {
            let real = ids.split_ascii_whitespace().next()?;
            real.parse().ok()
        });
        let uid = uid.unwrap_or_default();
        if !self.allows(uid, Instant::now()) {
            return Ok(None);
        }
        let mappings = Mappings::of(pid)?;
        self.spend(uid, mappings.size_bytes());
        Ok(Some(mappings))
    }

    fn allows(&mut self, uid: u32, now: Instant) -> bool {
        if self
            .since
            .is_none_or(|since| now.duration_since(since) > WINDOW)
        {
            self.since = Some(now);
            self.spent.clear();
        }
        self.spent.get(&uid).is_none_or(|spent| *spent < MAX_BYTES)
    }

    fn spend(&mut self, uid: u32, bytes: u64) {
        *self.spent.entry(uid).or_default() += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_much_in_a_second_and_costs_no_other() {
        let mut budget = MappingBudget::default();
        let start = Instant::now();
        for _ in 0..32 {
            assert!(budget.allows(1, start));
            budget.spend(1, 1 << 20);
        }
        assert!(!budget.allows(1, start) && budget.allows(2, start));
        budget.spend(2, 64 << 20);
        assert!(!budget.allows(2, start + WINDOW));
        let later = start + WINDOW + Duration::from_millis(1);
        assert!(budget.allows(1, later) && budget.allows(2, later));
    }

    #[test]
    fn our_own_mappings_are_read_until_it_is_enough() -> io::Result<()> {
        let mut budget = MappingBudget::default();
        let pid = std::process::id();
        let own = budget.read(pid)?.map_or(0, |maps| maps.iter().count());
        assert!(own > 5, "{own}");
        let own_uid = nix::unistd::getuid().as_raw();
        assert!(budget.spent.contains_key(&own_uid));
        budget.spend(own_uid, MAX_BYTES);
        assert!(budget.read(pid)?.is_none());
        assert!(budget.read(u32::MAX).is_err());
        Ok(())
    }
}
