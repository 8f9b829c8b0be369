//! Budget per user for reading memory mappings.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crate::proc::{Mappings, Status};

/// Period over which bytes are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Bytes of mapping lists that are read per user and period; the list that exceeds it is still
/// read. Enough for a thousand processes of the usual size, or for half the list of one process
/// with as many mappings and names as long as possible. The kernel takes about 10 ns per byte.
const MAX_BYTES: u64 = 32 << 20;

/// Reads mappings of processes within a budget per user: a user may have many processes with many
/// mappings each, which must not delay the tracing of others.
#[derive(Debug, Default)]
pub struct MappingBudget {
    since: Option<Instant>,
    spent: HashMap<u32, u64>,
}

impl MappingBudget {
    /// Reads the mappings of process `pid`; `None` if the budget of its user is spent.
    ///
    /// # Errors
    /// Returns the error of [`Mappings::of`] if the process has exited or may not be read.
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
    fn the_budget_is_per_user_and_second() {
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
    fn own_mappings_are_read_within_the_budget() -> io::Result<()> {
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
