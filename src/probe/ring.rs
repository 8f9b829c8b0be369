//! Reading a BPF ring buffer through a small window.
//!
//! libbpf maps the whole ring, twice in a row so that records never wrap, and the kernel counts
//! every page of that as resident: 64 MiB for a ring of 32 MiB, in a program that uses less than one
//! itself. This reader maps the half MiB that it is reading. The protocol is the kernel's
//! (`kernel/bpf/ringbuf.c`): a page with the consumer's position, a page with the producer's, and
//! the data; each record starts with a 32-bit length, whose top bits mark it as busy or discarded.

#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use libbpf_rs::MapCore;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of data after which the window moves. Half of the mapped bytes: a record that begins in the
/// first half ends within the second.
const WINDOW_STEP: usize = 256 * 1024;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: usize = 8;
/// Records after which their space is returned to the producers.
const BATCH: usize = 64;

/// Consumer of a ring's records.
pub trait Consumer {
    /// Processes the next record.
    fn take(&mut self, record: &[u8]);
}

impl<F: FnMut(&[u8])> Consumer for F {
    fn take(&mut self, record: &[u8]) {
        self(record);
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    /// A record is still being written.
    Busy,
    OutOfTime,
}

/// A record in the ring.
struct RingRecord<'a> {
    /// Its bytes; `None` if it was discarded.
    record: Option<&'a [u8]>,
    /// Position of the next record.
    next: u64,
}

/// A shared mapping of part of a map.
pub(super) struct SharedMapping {
    start: NonNull<u8>,
    length: NonZeroUsize,
}

impl SharedMapping {
    pub(super) fn new(
        map: &OwnedFd,
        offset: usize,
        length: usize,
        protection: ProtFlags,
    ) -> Result<Self> {
        let length = NonZeroUsize::new(length).context("empty mapping")?;
        let offset = i64::try_from(offset)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, map, offset) }
            .context("cannot map a BPF map")?;
        Ok(Self {
            start: start.cast(),
            length,
        })
    }

    /// The 32-bit value at `offset` bytes of the mapping, a multiple of 4.
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.length.get());
        // SAFETY: it is aligned, inside of the mapping, and lives as long as `self`; the kernel accesses the
        // word atomically.
        unsafe { self.start.add(offset).cast::<AtomicU32>().as_ref() }
    }

    /// The 64-bit value at the start of a position page.
    fn position(&self) -> &AtomicU64 {
        // SAFETY: the mapping is page-aligned, at least 8 bytes long, and lives as long as `self`;
        // the kernel accesses the word atomically.
        unsafe { self.start.cast::<AtomicU64>().as_ref() }
    }
}

// SAFETY: the memory is that of the process, whichever thread reads it, and is unmapped once.
unsafe impl Send for SharedMapping {}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one that was mapped, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.start.cast(), self.length.get()) };
    }
}

/// The single reader of a ring.
pub(super) struct Ring {
    map: OwnedFd,
    page: usize,
    data_bytes: usize,
    step: usize,
    consumer: SharedMapping,
    producer: SharedMapping,
    /// The mapped part of the data, with its offset.
    window: Option<(usize, SharedMapping)>,
    position: u64,
}

impl Ring {
    /// Opens `map`, which must have no other reader.
    pub(super) fn open(map: &dyn MapCore) -> Result<Self> {
        let data_bytes = map.max_entries() as usize;
        let map = map.as_fd().try_clone_to_owned()?;
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?
            .and_then(|size| usize::try_from(size).ok())
            .context("cannot determine the page size")?;
        let read_write = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let consumer = SharedMapping::new(&map, 0, page, read_write)?;
        let producer = SharedMapping::new(&map, page, page, ProtFlags::PROT_READ)?;
        let position = consumer.position().load(Ordering::Acquire);
        Ok(Self {
            map,
            page,
            data_bytes,
            step: WINDOW_STEP.min(data_bytes),
            consumer,
            producer,
            window: None,
            position,
        })
    }

    /// A descriptor that becomes readable when the kernel wakes the reader.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.map
    }

    /// Current position of the producers.
    pub(super) fn end(&self) -> u64 {
        self.producer.position().load(Ordering::Acquire)
    }

    /// Current position of the reader.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Passes each record before `end` to `consumer`, at most until `until`.
    pub(super) fn read_to(
        &mut self,
        end: u64,
        consumer: &mut impl Consumer,
        until: Option<Instant>,
    ) -> Result<Progress> {
        let result = loop {
            if self.position >= end {
                break Ok(Progress::Done);
            }
            if until.is_some_and(|until| Instant::now() > until) {
                break Ok(Progress::OutOfTime);
            }
            match self.read_some(end, consumer) {
                Ok(true) => {}
                Ok(false) => break Ok(Progress::Busy),
                Err(error) => break Err(error),
            }
            self.release();
        };
        self.release();
        result
    }

    /// Passes up to [`BATCH`] records before `end`. Returns false if it meets one that is still being
    /// written.
    fn read_some(&mut self, end: u64, consumer: &mut impl Consumer) -> Result<bool> {
        for _ in 0..BATCH {
            if self.position >= end {
                break;
            }
            let Some(RingRecord { record, next }) = self.record_at(self.position)? else {
                return Ok(false);
            };
            if let Some(record) = record {
                consumer.take(record);
            }
            self.position = next;
        }
        Ok(true)
    }

    /// Returns the space of the records read to the producers.
    fn release(&self) {
        let position = self.consumer.position();
        position.store(self.position, Ordering::Release);
    }

    /// The record at `position`; `None` if it is still being written.
    fn record_at(&mut self, position: u64) -> Result<Option<RingRecord<'_>>> {
        let (bytes, offset) = self.window_at(position)?;
        // SAFETY: records start at multiples of 8, so the word is aligned and inside the window;
        // the kernel stores it atomically.
        let header = unsafe { &*bytes.as_ptr().add(offset).cast::<AtomicU32>() };
        let header = header.load(Ordering::Acquire);
        if header & BUSY != 0 {
            return Ok(None);
        }
        let length = (header & !DISCARDED) as usize;
        let start = offset + HEADER_BYTES;
        let Some(payload) = bytes.get(start..start + length) else {
            bail!("corrupt ring: a record of {length} bytes exceeds the window");
        };
        let next = position + (HEADER_BYTES + length).next_multiple_of(8) as u64;
        let record = (header & DISCARDED == 0).then_some(payload);
        Ok(Some(RingRecord { record, next }))
    }

    /// The mapped window, moved if necessary, and the offset of `position` in it.
    fn window_at(&mut self, position: u64) -> Result<(&[u8], usize)> {
        // The size of the data is a power of two.
        let offset = (position & (self.data_bytes as u64 - 1)) as usize;
        let start = offset - offset % self.step;
        let window = match self.window.take() {
            Some((mapped, window)) if mapped == start => window,
            _ => {
                let place = 2 * self.page + start;
                SharedMapping::new(&self.map, place, 2 * self.step, ProtFlags::PROT_READ)?
            }
        };
        let (_, window) = self.window.insert((start, window));
        // SAFETY: the range is mapped as long as `self.window` is not changed, which the borrow of `self`
        // ensures. The kernel writes only beyond the committed records, and only these are read, except
        // for headers, which are read atomically.
        let bytes = unsafe {
            std::slice::from_raw_parts(window.start.as_ptr().cast_const(), window.length.get())
        };
        Ok((bytes, offset - start))
    }
}
