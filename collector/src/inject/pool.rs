//! The buffers that CUPTI fills.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most memory that all buffers together may have: with 8 MiB each, 64 threads that call CUDA at
/// the same time.
const POOL_BYTES: usize = 512 << 20;
/// There is always one that is filled while others are read.
const FEWEST_BUFFERS: usize = 4;

/// Equal buffers, made when they are first needed.
pub(super) struct Pool {
    buffer_bytes: usize,
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Addresses of those that nobody uses; all zeros.
    free: Vec<usize>,
    /// Addresses of those that CUPTI has.
    lent: HashSet<usize>,
    made: usize,
}

/// A buffer that CUPTI has given back.
pub(super) struct Buffer {
    start: NonNull<u8>,
    valid_bytes: usize,
}

// SAFETY: the buffer belongs to whoever has this.
unsafe impl Send for Buffer {}

impl Buffer {
    /// The part that CUPTI has filled.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the pool made it with at least as many bytes, which are initialised from the
        // start, and CUPTI has given it back.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.valid_bytes) }
    }
}

impl Pool {
    pub(super) fn new(buffer_bytes: usize) -> Self {
        let most = (POOL_BYTES / buffer_bytes).max(FEWEST_BUFFERS);
        Self {
            buffer_bytes,
            most,
            inner: Mutex::default(),
        }
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of zeros for CUPTI; `None` if there are as many as there may be.
    pub(super) fn lend(&self) -> Option<NonNull<u8>> {
        let mut inner = self.inner();
        let start = match inner.free.pop() {
            Some(start) => start,
            None if inner.made < self.most => {
                let start = map(self.buffer_bytes)?;
                inner.made += 1;
                start
            }
            None => return None,
        };
        inner.lent.insert(start);
        NonNull::new(start as *mut u8)
    }

    /// What CUPTI gives back, with `valid_bytes` filled; `None` if it is none of ours, or if it
    /// cannot have so much in it.
    pub(super) fn take_back(&self, start: *mut u8, valid_bytes: usize) -> Option<Buffer> {
        let start = NonNull::new(start)?;
        let was_lent = self.inner().lent.remove(&(start.as_ptr() as usize));
        was_lent.then_some(Buffer {
            start,
            valid_bytes: valid_bytes.min(self.buffer_bytes),
        })
    }

    /// Makes a buffer that was read free again.
    pub(super) fn recycle(&self, buffer: Buffer) {
        let Buffer { start, valid_bytes } = buffer;
        // CUPTI is told that buffers are zeros, so that it does not clear them in the program's
        // threads.
        // SAFETY: the buffer has at least as many bytes and nobody else has it.
        unsafe { ptr::write_bytes(start.as_ptr(), 0, valid_bytes) };
        self.inner().free.push(start.as_ptr() as usize);
    }
}

/// Fresh memory, page by page only when it is written to.
fn map(bytes: usize) -> Option<usize> {
    // SAFETY: a new anonymous mapping touches nothing that exists.
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
    fn there_are_only_so_many() {
        let pool = Pool::new(POOL_BYTES / 2);
        let lent: Vec<_> = (0..FEWEST_BUFFERS).map(|_| pool.lend().unwrap()).collect();
        assert!(pool.lend().is_none());
        let buffer = pool.take_back(lent[0].as_ptr(), 16).unwrap();
        assert!(pool.lend().is_none());
        pool.recycle(buffer);
        assert_eq!(pool.lend(), Some(lent[0]));
    }

    #[test]
    fn what_is_not_lent_is_not_taken_back() {
        let pool = Pool::new(1 << 16);
        let start = pool.lend().unwrap();
        assert!(pool.take_back(ptr::null_mut(), 8).is_none());
        let mut other = [0u8; 8];
        assert!(pool.take_back(other.as_mut_ptr(), 8).is_none());
        assert!(pool.take_back(start.as_ptr(), 8).is_some());
        assert!(pool.take_back(start.as_ptr(), 8).is_none());
    }

    #[test]
    fn a_buffer_is_zeros_again_and_never_longer_than_it_is() {
        let pool = Pool::new(1 << 16);
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
