//! Kernels without BTF.
//!
//! Reads of kernel structures (CO-RE) and calls of kernel functions other than helpers (kfuncs) need
//! BTF. For the first, libbpf gets a BTF file without types, so that the programs find no field and
//! do without (`bpf/kernel.h`). For the second, libbpf rejects the whole object because of a single
//! reference, so a second object has none.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::embedded;
use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// BTF of the running kernel.
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// The missing features without BTF, for messages.
pub const MISSED_WITHOUT: &str = "children are not followed, call stacks are those of frame \
     pointers and have no Python, and a process ends with its first thread";

/// Whether the running kernel provides BTF.
pub fn kernel_has_types() -> bool {
    Path::new(KERNEL_BTF).exists()
}

/// The object for the running kernel, for the skeleton.
pub(super) fn object() -> &'static [u8] {
    embedded::object_to_open(kernel_has_types())
}

/// BTF without types: the header, and the mandatory empty string.
fn no_types() -> Vec<u8> {
    const MAGIC: u16 = 0xeb9f;
    const HEADER_BYTES: u32 = 24;
    let (type_offset, type_bytes, string_offset, string_bytes) = (0u32, 0u32, 0u32, 1u32);
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend([1, 0]); // version, flags
    for word in [
        HEADER_BYTES,
        type_offset,
        type_bytes,
        string_offset,
        string_bytes,
    ] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.push(0);
    bytes
}

/// A file in memory with [`no_types`], and a path that is valid while it is open.
///
/// # Errors
/// Returns an error if the file cannot be created or written.
pub(super) fn no_types_file() -> Result<(File, String)> {
    let memory = memfd_create(c"gpuprobe-no-types", MFdFlags::MFD_CLOEXEC)
        .context("cannot create a file in memory")?;
    let mut file = File::from(memory);
    file.write_all(&no_types())?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_types_is_a_header_and_an_empty_string() {
        let bytes = no_types();
        assert_eq!(bytes.len(), 25);
        assert_eq!(bytes[..4], [0x9f, 0xeb, 1, 0]);
        assert_eq!(bytes[20..], [1, 0, 0, 0, 0]);
    }
}
