//! Pool of the buffers that CUPTI fills.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum address space of all buffers. CUPTI fills one buffer per thread that calls CUDA: with 8
/// MiB each this is 512 threads. Only written pages take memory.
const ADDRESS_BYTES: usize = 4 << 30;
/// Minimum number of buffers, so that one can be filled while others are read.
const FEWEST_BUFFERS: usize = 4;
/// Maximum number of unread bytes. Beyond it, records are dropped, and counted.
const UNREAD_BYTES: usize = 512 << 20;
/// Pool of buffers of equal size, created on demand.
pub(super) struct BufferPool {
    buffer_bytes: usize,
    most_buffers: usize,
    most_unread_bytes: usize,
    inner: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Addresses of the buffers that CUPTI has.
    lent: HashSet<usize>,
    /// Number of lent and unread buffers.
    made: usize,
    /// Filled bytes in unread buffers.
    unread_bytes: usize,
}

/// A buffer that CUPTI has returned.
pub(super) struct Buffer {
    start: NonNull<u8>,
    valid_bytes: usize,
}

// SAFETY: the owner of this value owns the buffer.
unsafe impl Send for Buffer {}

impl Buffer {
    /// The part that CUPTI has filled.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the pool mapped it with at least this size, zeroed, and CUPTI has returned it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.valid_bytes) }
    }
}

impl BufferPool {
    pub(super) fn new(buffer_bytes: usize) -> Self {
        let most_buffers = (ADDRESS_BYTES / buffer_bytes).max(FEWEST_BUFFERS);
        Self::with_limits(buffer_bytes, most_buffers, UNREAD_BYTES)
    }

    fn with_limits(buffer_bytes: usize, most_buffers: usize, most_unread_bytes: usize) -> Self {
        Self {
            buffer_bytes,
            most_buffers,
            most_unread_bytes,
            inner: Mutex::default(),
        }
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    fn inner(&self) -> MutexGuard<'_, PoolState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A zeroed buffer for CUPTI; `None` at the maximum number of buffers or of unread bytes.
    pub(super) fn lend(&self) -> Option<NonNull<u8>> {
        let mut inner = self.inner();
        if inner.unread_bytes > self.most_unread_bytes || inner.made >= self.most_buffers {
            return None;
        }
        let start = map(self.buffer_bytes)?;
        inner.made += 1;
        inner.lent.insert(start);
        NonNull::new(start as *mut u8)
    }

    /// Takes a buffer that CUPTI returns, with `valid_bytes` filled; `None` if it is not lent, or
    /// if `valid_bytes` exceeds its size.
    pub(super) fn take_back(&self, start: *mut u8, valid_bytes: usize) -> Option<Buffer> {
        let start = NonNull::new(start)?;
        let valid_bytes = valid_bytes.min(self.buffer_bytes);
        let mut inner = self.inner();
        let was_lent = inner.lent.remove(&(start.as_ptr() as usize));
        was_lent.then(|| {
            inner.unread_bytes += valid_bytes;
            Buffer { start, valid_bytes }
        })
    }

    /// Unmaps a buffer that was read: the next one is mapped anew, zeroed by the kernel as it is filled.
    #[allow(clippy::needless_pass_by_value, reason = "it is gone")]
    pub(super) fn recycle(&self, buffer: Buffer) {
        let mut inner = self.inner();
        inner.unread_bytes -= buffer.valid_bytes;
        inner.made -= 1;
        drop(inner);
        // SAFETY: the pool mapped it with this size, and nothing else refers to it.
        unsafe { libc::munmap(buffer.start.as_ptr().cast(), self.buffer_bytes) };
    }
}

/// Maps anonymous memory.
fn map(bytes: usize) -> Option<usize> {
    // SAFETY: a new anonymous mapping affects no existing one.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (start != libc::MAP_FAILED).then_some(start as usize)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_buffers_is_bounded() {
        let pool = BufferPool::with_limits(1 << 16, 4, UNREAD_BYTES);
        let lent: Vec<_> = (0..4).map(|_| pool.lend().unwrap()).collect();
        assert!(pool.lend().is_none());
        let buffer = pool.take_back(lent[0].as_ptr(), 16).unwrap();
        assert!(pool.lend().is_none());
        pool.recycle(buffer);
        assert!(pool.lend().is_some());
        assert!(pool.lend().is_none());
    }

    #[test]
    fn unread_bytes_are_bounded() {
        let pool = BufferPool::with_limits(1 << 16, 100, 1 << 16);
        let lent: Vec<_> = (0..3).map(|_| pool.lend().unwrap()).collect();
        let full = |start: &NonNull<u8>| pool.take_back(start.as_ptr(), 1 << 16).unwrap();
        let first = full(&lent[0]);
        assert!(pool.lend().is_some());
        let second = full(&lent[1]);
        assert!(pool.lend().is_none());
        pool.recycle(first);
        assert!(pool.lend().is_some());
        pool.recycle(second);
    }

    #[test]
    fn buffers_that_are_not_lent_are_refused() {
        let pool = BufferPool::new(1 << 16);
        let start = pool.lend().unwrap();
        assert!(pool.take_back(ptr::null_mut(), 8).is_none());
        let mut other = [0u8; 8];
        assert!(pool.take_back(other.as_mut_ptr(), 8).is_none());
        assert!(pool.take_back(start.as_ptr(), 8).is_some());
        assert!(pool.take_back(start.as_ptr(), 8).is_none());
    }

    #[test]
    fn returned_buffers_are_zeroed_and_bounded() {
        let pool = BufferPool::new(1 << 16);
        let start = pool.lend().unwrap();
        // SAFETY: the buffer was lent to this test.
        unsafe { ptr::write_bytes(start.as_ptr(), 7, 100) };
        let buffer = pool.take_back(start.as_ptr(), usize::MAX).unwrap();
        assert_eq!(buffer.bytes().len(), 1 << 16);
        assert_eq!(buffer.bytes()[99], 7);
        pool.recycle(buffer);
        let again = pool.lend().unwrap();
        let buffer = pool.take_back(again.as_ptr(), 100).unwrap();
        assert_eq!(buffer.bytes(), [0; 100]);
    }
}
