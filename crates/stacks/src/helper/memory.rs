//! Memory of other processes.

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// Reads memory of process `pid` at `address` into `buffer` and returns the bytes read: fewer than
/// requested at the end of a mapping; `None` if nothing is mapped there or the process has exited.
///
/// Memory that the process has mapped from a file, or whose page faults it handles, may never come.
/// Unlike a read of `/proc/PID/mem`, this waits without the lock of the address space (`mmap_lock`):
/// attaching a uprobe waits for that lock, and every `fork` of the host for the attaching.
pub(crate) fn read(pid: u32, address: u64, buffer: &mut [u8]) -> Option<&[u8]> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    let remote = RemoteIoVec {
        base: usize::try_from(address).ok()?,
        len: buffer.len(),
    };
    let count = process_vm_readv(pid, &mut [IoSliceMut::new(buffer)], &[remote]).ok()?;
    buffer.get(..count).filter(|bytes| !bytes.is_empty())
}

/// Ranges that the kernel reads by one call: `UIO_MAXIOV`.
const AT_ONCE: usize = 1024;

/// Reads memory of a process at these addresses, so many bytes of each, and no more than `most` in all: by as few calls
/// as can be, so that little time is between the first and the last. There are fewer bytes at the end of a mapping.
pub(crate) fn read_all(pid: u32, ranges: &[(u64, usize)], most: usize) -> Vec<Vec<u8>> {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap_or_default());
    let mut left = most;
    let buffer = |&(_, size_bytes): &(u64, usize)| {
        let size_bytes = size_bytes.min(left);
        left -= size_bytes;
        // Written to, so that its pages are there.
        vec![u8::MAX; size_bytes]
    };
    let mut all: Vec<Vec<u8>> = ranges.iter().map(buffer).collect();
    let mut first = 0;
    while first < all.len() {
        let next = all[first..].iter_mut().take(AT_ONCE);
        let mut next: Vec<_> = next.map(|buffer| IoSliceMut::new(buffer)).collect();
        let remote = ranges[first..].iter().zip(&next);
        let remote = remote.map(|(&(address, _), buffer)| RemoteIoVec {
            base: address as usize,
            len: buffer.len(),
        });
        let remote: Vec<_> = remote.collect();
        let mut read = process_vm_readv(pid, &mut next, &remote).unwrap_or(0);
        for buffer in &mut all[first..first + remote.len()] {
            first += 1;
            let is_whole = read >= buffer.len();
            buffer.truncate(read);
            read -= buffer.len();
            if !is_whole {
                break;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;

    #[test]
    fn mapped_memory_can_be_read() {
        let own = std::process::id();
        let text = *b"here";
        let address = text.as_ptr().addr() as u64;
        let mut buffer = [0; 4];
        assert_eq!(read(own, address, &mut buffer), Some(&b"here"[..]));
        assert_eq!(read(own, 8, &mut buffer), None);
        assert_eq!(read(u32::MAX, address, &mut buffer), None);
        assert_eq!(read(own, u64::MAX, &mut buffer), None);
        let ranges = [
            (address, 2),
            (8, 4),
            (address, 0),
            (u64::MAX, 4),
            (address + 1, 3),
        ];
        let read = |most| read_all(own, &ranges, most);
        assert_eq!(read(100), [&b"he"[..], b"", b"", b"", b"ere"]);
        assert_eq!(read(12), [&b"he"[..], b"", b"", b"", b"er"]);
        let many = iter::repeat_n((address, 4), 3 * AT_ONCE);
        let many = read_all(own, &many.collect::<Vec<_>>(), usize::MAX);
        assert_eq!(many, vec![text; 3 * AT_ONCE]);
    }
}
