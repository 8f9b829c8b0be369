//! Memory of the readers: together they have what gpuprobe leaves of a limit.
//!
//! The kernel keeps the limit of each, so that it holds between two measurements, too. It is lower than that of its
//! kind while gpuprobe itself has much; a reader that has more than is left then is killed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpuprobe_os::confined::limit_data;
use gpuprobe_os::own_memory;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Memory of a reader that always has what its kind may have, bytes.
const SMALL: u64 = 4 << 20;
/// Minimum memory of any other reader, bytes.
const MIN_MEMORY: u64 = 6 << 20;

static READERS: Mutex<Readers> = Mutex::new(Readers {
    running: Vec::new(),
    room: u64::MAX,
});

/// The readers that run, and how much memory they may have together.
struct Readers {
    running: Vec<Arc<LimitedReader>>,
    room: u64,
}

#[derive(Debug)]
struct LimitedReader {
    pid: u32,
    /// The limit of its kind, and the present one, bytes.
    most: u64,
    limit: AtomicU64,
}

/// Registers a reader until this is dropped, which is before its PID can be another process's.
#[derive(Debug)]
pub(super) struct ReaderMemory(Arc<LimitedReader>);

impl ReaderMemory {
    /// That of the reader `pid`, which may have `most` bytes at most. It has confined itself.
    pub(super) fn of(pid: u32, most: u64) -> Self {
        let limit = AtomicU64::new(most);
        let reader = Arc::new(LimitedReader { pid, most, limit });
        let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
        readers.running.push(Arc::clone(&reader));
        // It may have ended.
        let _ = limit_data(pid, most, most);
        readers.share();
        Self(reader)
    }

    /// Whether it may have less than its kind: what it has failed at may succeed later. That is reported.
    pub(super) fn was_short(&self) -> bool {
        let was_short = self.0.limit.load(Ordering::Relaxed) < self.0.most;
        if was_short {
            report_shortage();
        }
        was_short
    }
}

impl Drop for ReaderMemory {
    fn drop(&mut self) {
        let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
        readers
            .running
            .retain(|reader| !Arc::ptr_eq(reader, &self.0));
    }
}

/// Lets the readers have `room` bytes of memory together, from now on.
pub fn limit_readers(room: u64) {
    let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
    readers.room = room;
    readers.share();
}

impl Readers {
    fn share(&self) {
        let memory = |reader: &Arc<LimitedReader>| {
            let used = own_memory::anonymous_bytes_of(reader.pid);
            [used.unwrap_or(0), reader.most]
        };
        let memory: Vec<_> = self.running.iter().map(memory).collect();
        let limits = limits(self.room, &memory);
        for (reader, (limit, [used, most])) in
            self.running.iter().zip(limits.into_iter().zip(memory))
        {
            if used > limit {
                give_up(reader.pid);
            }
            if reader.limit.swap(limit, Ordering::Relaxed) != limit {
                let _ = limit_data(reader.pid, limit, most);
            }
        }
    }
}

/// Says, once, that names are missing for want of memory.
fn report_shortage() {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "there is little memory left for reading files of programs: some functions have no name for now"
        );
    }
}

fn give_up(reader: u32) {
    report_shortage();
    if let Ok(pid) = i32::try_from(reader) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// The limits of readers that use, and may have at most, so much memory, where all of them may have `room` together.
/// Who uses more than the limit has to go.
fn limits(room: u64, readers: &[[u64; 2]]) -> Vec<u64> {
    let small = readers.iter().filter(|[_, most]| *most <= SMALL);
    let room = room.saturating_sub(small.map(|[_, most]| most).sum());
    let large = readers.iter().filter(|[_, most]| *most > SMALL);
    let mut used: Vec<u64> = large.map(|[used, _]| *used).collect();
    while used.iter().sum::<u64>() > room {
        let Some(largest) = used.iter_mut().max().filter(|used| **used > MIN_MEMORY) else {
            break;
        };
        *largest = MIN_MEMORY;
    }
    let free = room.saturating_sub(used.iter().sum());
    let share = free / used.len().max(1) as u64;
    let mut used = used.into_iter();
    let limit = |[_, most]: &[u64; 2]| match *most <= SMALL {
        true => *most,
        false => {
            let used = used.next().unwrap_or(0);
            used.saturating_add(share).clamp(MIN_MEMORY, *most)
        }
    };
    readers.iter().map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn in_mib(room: u64, readers: &[[u64; 2]]) -> Vec<u64> {
        let bytes: Vec<_> = readers.iter().map(|one| one.map(|mib| mib * MIB)).collect();
        let limits = limits(room.saturating_mul(MIB), &bytes);
        limits.iter().map(|limit| limit / MIB).collect()
    }

    #[test]
    fn readers_share_what_is_left() {
        const KINDS: [u64; 4] = [64, 96, 4, 4];
        let cases: [(u64, [u64; 4], [u64; 4]); 8] = [
            (u64::MAX, [2, 2, 1, 1], [64, 96, 4, 4]),
            (200, [2, 2, 1, 1], [64, 96, 4, 4]),
            // Half of what is free each, besides what they have.
            (128, [2, 2, 1, 1], [60, 60, 4, 4]),
            (128, [2, 60, 1, 1], [31, 89, 4, 4]),
            (128, [10, 90, 1, 1], [20, 96, 4, 4]),
            // Who has most goes.
            (100, [10, 90, 1, 1], [48, 44, 4, 4]),
            (20, [5, 5, 1, 1], [6, 6, 4, 4]),
            (0, [5, 9, 1, 1], [6, 6, 4, 4]),
        ];
        for (room, used, expected) in cases {
            let readers: Vec<_> = used.into_iter().zip(KINDS).map(|(a, b)| [a, b]).collect();
            assert_eq!(in_mib(room, &readers), expected, "{room} {used:?}");
        }
        assert!(in_mib(7, &[]).is_empty());
    }

    #[test]
    fn readers_never_have_more_than_the_room_and_what_is_theirs_in_any_case() {
        for room in 0..300 {
            for used in 0..97 {
                let readers = [[used.min(64), 64], [used, 96], [1, 4], [1, 4]];
                let limits = in_mib(room, &readers);
                let kept = readers
                    .iter()
                    .zip(&limits)
                    .filter(|(one, most)| one[0] <= **most);
                let sum: u64 = limits.iter().sum();
                assert!(sum <= room.max(20), "{room} {used}: {limits:?}");
                assert!(kept.count() >= 2, "{room} {used}: {limits:?}");
            }
        }
    }
}
