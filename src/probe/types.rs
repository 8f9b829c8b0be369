//! Kernels without type information (BTF).
//!
//! Two things need it: what is read of the kernel's own structures, and calls of kernel functions
//! that are no helpers. For the first, libbpf is given type information in which there is no type,
//! so that the programs find nothing and do without (`bpf/kernel.h`). A single reference to the
//! second makes libbpf refuse the whole object, so there is another that has none.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Type information of the running kernel.
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// What does not work without, for messages.
pub const MISSED_WITHOUT: &str = "children are not followed, call stacks are those of frame \
     pointers and have no Python, and a process ends with its first thread";

/// Whether the running kernel says how its structures are laid out.
pub fn kernel_has_types() -> bool {
    Path::new(KERNEL_BTF).exists()
}

/// The same programs and maps as in the skeleton's object, but no session.
static WITHOUT_TYPES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/without_types.bpf.o"));

/// The object to load here: `with_types` is the skeleton's own.
pub(super) fn object(with_types: &'static [u8]) -> &'static [u8] {
    if kernel_has_types() {
        with_types
    } else {
        WITHOUT_TYPES
    }
}

/// Type information without a type: the header, and the one string that there must be.
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

/// A file with [`no_types`], and a path to it for as long as it is open.
///
/// # Errors
/// Those of making it.
pub(super) fn no_types_file() -> Result<(File, String)> {
    let memory = memfd_create(c"gpuprobe-no-types", MFdFlags::MFD_CLOEXEC)
        .context("cannot make a file in memory")?;
    let mut file = File::from(memory);
    file.write_all(&no_types())?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_nothing_but_a_header_and_an_empty_string() {
        let bytes = no_types();
        assert_eq!(bytes.len(), 25);
        assert_eq!(bytes[..4], [0x9f, 0xeb, 1, 0]);
        assert_eq!(bytes[20..], [1, 0, 0, 0, 0]);
    }
}
