//! Trust in file systems: opening, closing or stating a file on a file system served by an
//! untrusted process (FUSE) can block for as long as that process likes, and cannot be interrupted.
//!
//! Files mapped by a traced process are therefore first located with `O_PATH`, which does not
//! contact the server; the kernel reports the mount, and the lists of mounts have its kind.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use procfs::process::MountInfo;
use rustix::fs::{AtFlags, Statx, StatxFlags, statx};

/// Bytes that are read of a process's mount list: it may have 100,000 entries.
const LIMIT: u64 = 4 << 20;
static ALL_ARE_TRUSTED: AtomicBool = AtomicBool::new(false);

/// Makes all file systems trusted from now on.
pub fn trust_all() {
    ALL_ARE_TRUSTED.store(true, Ordering::Relaxed);
}

/// Whether all file systems are trusted.
pub fn all_are_trusted() -> bool {
    ALL_ARE_TRUSTED.load(Ordering::Relaxed)
}

/// Prints a warning, once, that files on untrusted file systems are skipped; `path` is the first of
/// them.
pub fn say_foreign(path: &Path) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::warn!(
            "{}, and others like it, are neither read nor probed: they are on a file system that \
             another user serves or has mounted; --untrusted-mounts has them read and probed",
            path.display()
        );
    });
}

/// Whether a file was not opened because its file system is not trusted.
pub fn is_foreign(error: &io::Error) -> bool {
    // Errors of the system of that kind have no text of their own.
    error.kind() == ErrorKind::Unsupported && error.get_ref().is_some()
}

/// Checks that `place`, an `O_PATH` descriptor found through process `pid`, is on a trusted file
/// system.
///
/// # Errors
/// Returns an error for which [`is_foreign`] is true, or the system's error.
pub(crate) fn check(place: &File, pid: u32) -> io::Result<()> {
    if all_are_trusted() || is_trusted(place, pid)? {
        return Ok(());
    }
    let why = "it is on a file system that another user serves or has mounted";
    Err(io::Error::new(ErrorKind::Unsupported, why))
}

/// Whether a file is on a mount of our namespace, or of another of our user namespace, as in most containers, or on a
/// file system that is mounted in ours, too; and is served by the kernel or root.
fn is_trusted(place: &File, pid: u32) -> io::Result<bool> {
    let found = described(place)?;
    let is_found = |mount: &&MountInfo| u64::try_from(mount.mnt_id) == Ok(found.stx_mnt_id);
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let own = current(&mut own)?;
    if let Some(mount) = own.iter().find(is_found) {
        return Ok(is_roots(mount));
    }
    let theirs = File::open(format!("/proc/{pid}/mountinfo")).and_then(|list| mounts(&list));
    let theirs = theirs.unwrap_or_default();
    let mount = theirs.iter().find(is_found);
    if let Some(mount) = mount.filter(|_| is_of_our_users(pid)) {
        return Ok(is_roots(mount));
    }
    // It may be unmounted, or the process sees only a part of its namespace.
    let device = mount.map_or_else(|| device(&found), |mount| mount.majmin.clone());
    let same = own.iter().find(|mount| mount.majmin == device);
    Ok(same.map_or_else(|| *KERNELS == Some(device), is_roots))
}

fn described(file: impl AsFd) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
    Ok(statx(file, c"", flags, wanted)?)
}

/// The device of a file, as lists of mounts name it.
fn device(found: &Statx) -> String {
    format!("{}:{}", found.stx_dev_major, found.stx_dev_minor)
}

/// Whether it is not a FUSE file system served by a user other than root.
fn is_roots(mount: &MountInfo) -> bool {
    let server = mount.super_options.get("user_id");
    !mount.fs_type.starts_with("fuse") || server.is_some_and(|id| id.as_deref() == Some("0"))
}

/// Whether process `pid` is of gpuprobe's user namespace, and so what it sees was mounted there.
fn is_of_our_users(pid: u32) -> bool {
    let own = fs::read_link("/proc/self/ns/user");
    let theirs = fs::read_link(format!("/proc/{pid}/ns/user"));
    theirs.is_ok_and(|theirs| own.is_ok_and(|own| own == theirs))
}

/// The device of the kernel's own in-memory file system (memfd, shared memory), which is mounted nowhere.
static KERNELS: LazyLock<Option<String>> = LazyLock::new(|| {
    let file = memfd_create(c"device", MFdFlags::MFD_CLOEXEC).ok()?;
    Some(device(&described(file).ok()?))
});

/// The mounts in a list.
fn mounts(list: &File) -> io::Result<Vec<MountInfo>> {
    let mut text = Vec::new();
    list.take(LIMIT).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let mounts = text.lines().flat_map(MountInfo::from_line);
    Ok(mounts.collect())
}

/// The mounts of gpuprobe's namespace, with the list that they were read from.
type OwnMounts = Option<(File, Vec<MountInfo>)>;

/// Most files are on one of these, and a host may have thousands.
static OWN: Mutex<OwnMounts> = Mutex::new(None);

/// The mounts in `own`, which are read again if polling their list tells that it has changed.
fn current(own: &mut OwnMounts) -> io::Result<&[MountInfo]> {
    own.take_if(|(list, _)| {
        let mut changes = [PollFd::new(list.as_fd(), PollFlags::POLLPRI)];
        poll(&mut changes, PollTimeout::ZERO) != Ok(0)
    });
    if own.is_none() {
        let list = File::open("/proc/self/mountinfo")?;
        let mounts = mounts(&list)?;
        *own = Some((list, mounts));
    }
    Ok(own.as_ref().map_or(&[], |(_, mounts)| mounts))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    use nix::libc;

    use super::*;

    fn place(path: &str) -> File {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_PATH);
        options.open(path).unwrap()
    }

    #[test]
    fn file_systems_of_root_are_trusted() {
        for (mount, expected) in [
            (
                "20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
                true,
            ),
            (
                "21 20 0:50 / /home/ada/my\\040music rw - fuse.sshfs host: rw,user_id=1000,group_id=1000",
                false,
            ),
            (
                "22 20 0:51 / /var/nydus rw - fuse.nydus n rw,user_id=0,group_id=0,allow_other",
                true,
            ),
            ("25 20 0:54 / /mnt rw - fuseblk /dev/sdb1 rw", false),
        ] {
            let parsed = MountInfo::from_line(mount).unwrap();
            assert_eq!(is_roots(&parsed), expected, "{mount}");
        }
    }

    #[test]
    fn own_files_are_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        for path in [
            "/proc/self/exe",
            folder.path().to_str().unwrap(),
            "/dev/null",
        ] {
            check(&place(path), pid).unwrap();
        }
        // It is on no listed mount.
        let file = memfd_create(c"file", MFdFlags::MFD_CLOEXEC).unwrap();
        check(&place(&format!("/proc/self/fd/{}", file.as_raw_fd())), pid).unwrap();
        assert!(is_of_our_users(pid) && !is_of_our_users(u32::MAX));
    }
}
