//! Identification of probed functions on kernels without attach cookies: see `bpf/offsets.h`.

use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags};

use super::attach::ProbePoint;
use super::prober::LinkOwner;

/// Prefix of the path of a probe, after which the kernel side finds the descriptor's number.
const PREFIX: &str = "/proc/self/fd/";
/// Maximum length of the number, with the terminating NUL.
const DESCRIPTOR_BYTES: usize = 8;

/// A probed file. The kernel side identifies it by the number of its descriptor, so the file must stay
/// open as long as the probes.
pub(super) struct OpenedFile {
    /// Path for the kernel.
    pub(super) path: String,
    pub(super) file: File,
}

/// The key of a probe in the map of cookies.
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

impl LinkOwner {
    /// Sets the cookies of `points` in the file at `path`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or the map is full.
    pub(super) fn enter_cookies(&self, path: &str, points: &[ProbePoint]) -> Result<OpenedFile> {
        let file = File::open(path).with_context(|| format!("cannot open {path}"))?;
        let descriptor = file.as_raw_fd();
        for point in points {
            let key = key(descriptor, point.offset)?;
            let cookies = &self.skeleton.maps.cookies;
            cookies
                .update(&key, &point.cookie.to_ne_bytes(), MapFlags::ANY)
                .context("cannot set an attach cookie: the map is full")?;
        }
        Ok(OpenedFile {
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
    fn keys_have_the_kernel_sides_layout() {
        let found = key(137, 0x1234).unwrap();
        assert_eq!(&found[..8], b"137\0\0\0\0\0");
        assert_eq!(found[8..], 0x1234u64.to_ne_bytes());
        assert!(key(9_999_999, 0).is_ok());
        // No room for the terminating NUL.
        assert!(key(10_000_000, 0).is_err());
    }
}
