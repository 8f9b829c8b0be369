//! Paths of cgroups by their ids.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use nix::libc::{O_CLOEXEC, O_PATH, open_by_handle_at};

use super::CGROUPS;

/// The kernel's `struct file_handle` of a cgroup.
#[repr(C)]
struct CgroupHandle {
    id_bytes: u32,
    kind: i32,
    id: u64,
}

/// `FILEID_KERNFS`: the handle is the id of a folder.
const KERNFS: i32 = 0xfe;

/// The path of cgroup `id` of version 2, if it still exists: for processes that ended before `/proc/PID/cgroup` was
/// read. Takes `CAP_DAC_READ_SEARCH`.
pub(super) fn path_of(id: u64) -> Option<String> {
    let root = root();
    let mount = File::open(&root).ok()?;
    let mut handle = CgroupHandle {
        id_bytes: 8,
        kind: KERNFS,
        id,
    };
    let (mount, handle) = (mount.as_raw_fd(), (&raw mut handle).cast());
    // SAFETY: the handle has the kernel's layout and as many bytes as it says; nobody else has the new descriptor.
    #[allow(unsafe_code)]
    let found = unsafe {
        let found = open_by_handle_at(mount, handle, O_PATH | O_CLOEXEC);
        (found >= 0).then(|| OwnedFd::from_raw_fd(found))?
    };
    let path = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()?;
    Some(format!("/{}", path.strip_prefix(root).ok()?.display()))
}

fn root() -> PathBuf {
    let unified = Some(PathBuf::from(CGROUPS).join("unified"));
    unified
        .filter(|path| path.exists())
        .unwrap_or(CGROUPS.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

    use super::*;

    #[test]
    fn a_cgroup_is_found_until_it_is_removed() {
        let kind = statfs(&root()).map(|system| system.filesystem_type());
        let folder = root().join(format!("gpuprobe-{}", std::process::id()));
        if kind != Ok(CGROUP2_SUPER_MAGIC) || fs::create_dir(&folder).is_err() {
            return;
        }
        let id = folder.metadata().unwrap().ino();
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert_eq!(path_of(id).unwrap(), format!("/{name}"));
        fs::remove_dir(&folder).unwrap();
        assert_eq!(path_of(id), None);
    }
}
