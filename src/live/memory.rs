//! Memory of gpuprobe and of its readers: it stays bounded, whatever is traced.
//!
//! Each kind of data that programs can make grow has a limit of its own, and these are generous: all at once
//! they would be twice what is promised. So the memory is measured while events are read, and the readers have
//! what gpuprobe leaves.

use std::time::{Duration, Instant};

use gpuprobe_model::MemoryRoom;
use gpuprobe_os::own_memory;
use gpuprobe_stacks::reader::limit_readers;

/// There is little room from so far below the limit, bytes.
const LITTLE: u64 = 32 << 20;
/// A state is left only so far below its beginning.
const BELOW: u64 = 16 << 20;
/// Memory of the readers besides that which gpuprobe leaves of its limit, bytes.
const READERS: u64 = 20 << 20;
/// Memory of a live allocation, bytes.
const ALLOCATION_BYTES: u64 = 64;
/// Shortest and longest interval of measurements, which cost some microseconds each, and how fast memory grows at
/// most, bytes a millisecond.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_millis(400);
const GROWTH: u64 = 512 << 10;
/// Interval of returning free memory to the system while there is little room.
const TRIM_EVERY: Duration = Duration::from_secs(1);

/// Room for more data of traced processes.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    limit_bytes: u64,
    room: MemoryRoom,
    measured: Instant,
    pause: Duration,
    trimmed: Instant,
    is_reported: bool,
}

impl MemoryLimit {
    /// There is no room from `limit_mib` MiB of memory on, besides that of live allocations.
    pub(super) fn of(limit_mib: u64) -> Self {
        let now = Instant::now();
        Self {
            limit_bytes: limit_mib.saturating_mul(1 << 20),
            room: MemoryRoom::default(),
            measured: now,
            pause: OFTEN,
            trimmed: now,
            is_reported: false,
        }
    }

    /// The room if it has changed; `allocations` are live, and what is being recorded takes
    /// `recorded_bytes`.
    pub(super) fn changed(&mut self, allocations: u64, recorded_bytes: u64) -> Option<MemoryRoom> {
        if self.measured.elapsed() < self.pause {
            return None;
        }
        if self.room != MemoryRoom::Ample && self.trimmed.elapsed() > TRIM_EVERY {
            own_memory::trim_heap();
            self.trimmed = Instant::now();
        }
        self.measured = Instant::now();
        let bytes = own_memory::anonymous_bytes().ok()?;
        let others = bytes
            .saturating_sub(allocations.saturating_mul(ALLOCATION_BYTES))
            .saturating_sub(recorded_bytes);
        limit_readers(
            self.limit_bytes
                .saturating_add(READERS)
                .saturating_sub(others),
        );
        self.pause = pause(others, self.limit_bytes);
        let room = room(others, self.limit_bytes, self.room);
        let has_changed = room != self.room;
        self.room = room;
        if has_changed && !std::mem::replace(&mut self.is_reported, true) {
            tracing::warn!(
                "gpuprobe takes {} MiB besides live allocations: call stacks, names and handles of users \
                 who have many are left out until it takes less",
                others >> 20
            );
        }
        has_changed.then_some(room)
    }
}

/// When to measure again: memory can grow so fast that there is little room then.
fn pause(bytes: u64, limit_bytes: u64) -> Duration {
    let until_little = limit_bytes.saturating_sub(LITTLE).saturating_sub(bytes);
    Duration::from_millis(until_little / GROWTH).clamp(OFTEN, SELDOM)
}

/// The room that `bytes` of `limit_bytes` leave, after `before`.
fn room(bytes: u64, limit_bytes: u64, before: MemoryRoom) -> MemoryRoom {
    let starts = [
        (MemoryRoom::None, limit_bytes),
        (MemoryRoom::Little, limit_bytes.saturating_sub(LITTLE)),
    ];
    let is_in = |(room, from): &(MemoryRoom, u64)| {
        let margin = if before >= *room { BELOW } else { 0 };
        bytes >= from.saturating_sub(margin)
    };
    let found = starts.into_iter().find(is_in);
    found.map_or(MemoryRoom::Ample, |(room, _)| room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_measured_more_often_the_less_is_left() {
        const LIMIT: u64 = 208 << 20;
        let ms = |mib: u64| pause(mib << 20, LIMIT).as_millis();
        assert_eq!(
            [0, 76, 126, 151, 176, 400].map(ms),
            [352, 200, 100, 50, 50, 50]
        );
        assert_eq!(pause(0, u64::MAX), SELDOM);
    }

    #[test]
    fn room_becomes_less_at_once_and_more_a_little_later() {
        use MemoryRoom::{Ample, Little, None};
        const NONE_FROM: u64 = 208 << 20;
        const LITTLE_FROM: u64 = NONE_FROM - LITTLE;
        let steps = [
            (LITTLE_FROM - 1, Ample),
            (LITTLE_FROM, Little),
            (LITTLE_FROM - BELOW, Little),
            (NONE_FROM, None),
            (NONE_FROM - BELOW, None),
            (NONE_FROM - BELOW - 1, Little),
            (LITTLE_FROM - BELOW - 1, Ample),
            (NONE_FROM, None),
            (0, Ample),
        ];
        let mut before = Ample;
        for (bytes, expected) in steps {
            before = room(bytes, NONE_FROM, before);
            assert_eq!(before, expected, "{bytes}");
        }
    }
}
