//! Telling functions apart on kernels without attach cookies: see `bpf/offsets.h`.

use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags};

use super::attach::Point;
use super::load::Probe;

/// Where the kernel side finds the number of our descriptor in the path of a probe.
const PREFIX: &str = "/proc/self/fd/";
/// Its digits and the terminating zero fit in this.
const DESCRIPTOR_BYTES: usize = 8;

/// A file that is probed. Its descriptor's number tells it from others for as long as it is open,
/// so it must be kept for as long as the probes are.
pub(super) struct Probed {
    /// What the kernel is to be told to probe.
    pub(super) path: String,
    pub(super) file: File,
}

/// The key of a probe in the kernel side's map.
fn key(descriptor: i32, offset: u64) -> Result<[u8; 16]> {
    let digits = descriptor.to_string();
    if digits.len() >= DESCRIPTOR_BYTES {
        bail!("too many open files");
    }
    let mut key = [0; 16];
    key[..digits.len()].copy_from_slice(digits.as_bytes());
    key[DESCRIPTOR_BYTES..].copy_from_slice(&offset.to_ne_bytes());
    Ok(key)
}

impl Probe {
    /// Enters what the cookies of `points` in the file at `path` are.
    ///
    /// # Errors
    /// The file cannot be opened, or the map is full.
    pub(super) fn enter_cookies(&self, path: &str, points: &[Point]) -> Result<Probed> {
        let file = File::open(path).with_context(|| format!("cannot open {path}"))?;
        let descriptor = file.as_raw_fd();
        for point in points {
            let key = key(descriptor, point.offset)?;
            let cookies = &self.skeleton.maps.cookies;
            cookies
                .update(&key, &point.cookie.to_ne_bytes(), MapFlags::ANY)
                .context("no room for more functions")?;
        }
        Ok(Probed {
            path: format!("{PREFIX}{descriptor}"),
            file,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_the_kernel_side_reads_them() {
        let found = key(137, 0x1234).unwrap();
        assert_eq!(&found[..8], b"137\0\0\0\0\0");
        assert_eq!(found[8..], 0x1234u64.to_ne_bytes());
        assert!(key(9_999_999, 0).is_ok());
        // Its terminating zero would not fit.
        assert!(key(10_000_000, 0).is_err());
    }
}
