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

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
