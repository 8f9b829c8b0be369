//! Memory of this process and of its children.

use std::io;

use nix::unistd::{SysconfVar, sysconf};

use crate::proc;

/// [`anonymous_bytes_of`] this process.
///
/// # Errors
/// Returns an error if [`anonymous_bytes_of`] does.
pub fn anonymous_bytes() -> io::Result<u64> {
    anonymous_bytes_of(std::process::id())
}

/// Anonymous memory of process `pid` that is resident, bytes: its heap and stacks, without files and rings
/// (`resident` less `shared` of `/proc/PID/statm`, see proc(5)).
///
/// # Errors
/// Returns the system's error if the file cannot be read, or `InvalidData`.
pub fn anonymous_bytes_of(pid: u32) -> io::Result<u64> {
    let text = proc::short(pid, "statm")?;
    let text = String::from_utf8_lossy(&text);
    let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (Some(Ok(resident)), Some(Ok(shared))) = (pages.next(), pages.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let page = sysconf(SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
    let page = u64::try_from(page).unwrap_or(4096);
    Ok(resident.saturating_sub(shared).saturating_mul(page))
}

/// Returns free memory of the heap to the system.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes no pointer and may be called at any time.
    #[allow(unsafe_code)]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_use_is_counted_and_freed_memory_is_not() {
        const BYTES: usize = 256 << 20;
        let before = anonymous_bytes().unwrap();
        let used = vec![1u8; BYTES];
        let during = anonymous_bytes().unwrap();
        assert!(during - before > BYTES as u64 / 2, "{before} {during}");
        drop(used);
        trim_heap();
        let after = anonymous_bytes().unwrap();
        assert!(during - after > BYTES as u64 / 2, "{during} {after}");
    }
}
