//! Opening of files chosen by a traced process: only regular files are opened, and other types are
//! left untouched.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::statfs::{self, FsType, fstatfs};

use crate::mounts;
use crate::proc;

/// File systems of the kernel where opening or reading a file may consume data (`kmsg`, `trace_pipe`) or use the
/// privileges of the reader; and huge pages: one that such a file has lost cannot be repaired in the mapping.
const MADE_UP: &[FsType] = &[
    statfs::PROC_SUPER_MAGIC,
    statfs::SYSFS_MAGIC,
    statfs::DEBUGFS_MAGIC,
    statfs::TRACEFS_MAGIC,
    statfs::HUGETLBFS_MAGIC,
];

/// Opens `path` for reading if it is a regular file; other types are not touched: the file that a
/// traced process has mapped need not be the file at the path now. Opening a FIFO blocks until
/// there is a writer, and opening a device may have side effects.
///
/// # Errors
/// Returns the system's error if the file cannot be opened, `WouldBlock` if another process holds a
/// lease on it, or an error of kind `Other` if it is not a regular file on a disk file system.
pub fn open_regular(path: &Path) -> io::Result<File> {
    reopen(&find(path, OFlag::empty())?, std::process::id())
}

/// As [`open_regular`], for files named by the user: untrusted file systems are allowed, since they
/// may be the user's own mounts.
///
/// # Errors
/// Returns the errors of [`open_regular`].
pub fn open_input(path: &Path) -> io::Result<File> {
    open_found(&find(path, OFlag::empty())?)
}

/// Opens the file that process `pid` has mapped in this address range, even if it was deleted or replaced, with the
/// checks of [`open_regular`]. Without `CAP_CHECKPOINT_RESTORE`, which that takes, opens the file at `path`, as the
/// process sees it, if that has the device and the inode of the mapping.
///
/// # Errors
/// Returns the errors of [`open_regular`], or `NotFound` if another file is at the path.
pub fn open_mapped(
    pid: u32,
    (start, end): (u64, u64),
    file: (u64, u64),
    path: &Path,
) -> io::Result<File> {
    match open_link(pid, &format!("map_files/{start:x}-{end:x}")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => open_by_path(pid, file, path),
        opened => opened,
    }
}

fn open_by_path(pid: u32, (device, inode): (u64, u64), path: &Path) -> io::Result<File> {
    // Since Linux 6.18, whoever may read the mappings of a process need not be able to reach its root.
    let file = open_regular_in_root(pid, path).or_else(|_| open_regular(path))?;
    let metadata = file.metadata()?;
    // btrfs and overlayfs have anonymous device numbers (major 0) per file, which maps and stat report differently.
    let is_device =
        metadata.dev() == device || [metadata.dev(), device].map(nix::sys::stat::major) == [0, 0];
    match is_device && metadata.ino() == inode {
        true => Ok(file),
        false => Err(ErrorKind::NotFound.into()),
    }
}

/// Opens the executable of process `pid`, with the checks of [`open_regular`].
///
/// # Errors
/// Returns the errors of [`open_regular`].
pub fn open_program(pid: u32) -> io::Result<File> {
    open_link(pid, "exe")
}

fn open_link(pid: u32, name: &str) -> io::Result<File> {
    let found = find(format!("/proc/{pid}/{name}").as_ref(), OFlag::empty())?;
    reopen(&found, pid)
}

fn find(path: &Path, flags: OFlag) -> io::Result<File> {
    let flags = OFlag::O_PATH | flags;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits()).open(path)
}

/// Reads the regular text file `path`, which the user has named.
///
/// # Errors
/// Returns the errors of [`open_input`], or `InvalidData` if it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    io::read_to_string(open_input(path)?)
}

/// Opens `path` as seen by process `pid`, with the checks of [`open_regular`]: symbolic links are
/// resolved within the root directory of the process.
///
/// # Errors
/// Returns the errors of [`open_regular`].
pub fn open_regular_in_root(pid: u32, path: &Path) -> io::Result<File> {
    open_regular_beneath(&root_of(pid)?, pid, path)
}

fn root_of(pid: u32) -> io::Result<File> {
    open_folder(format!("/proc/{pid}/root").as_ref())
}

fn find_beneath(root: &File, path: &Path, flags: OFlag) -> io::Result<File> {
    let within = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let flags = flags | OFlag::O_PATH | OFlag::O_CLOEXEC;
    Ok(openat2(root, path, OpenHow::new().flags(flags).resolve(within))?.into())
}

/// Opens a directory as a starting point (`O_PATH`).
///
/// # Errors
/// Returns the system's error if it cannot be opened or is not a directory.
pub fn open_folder(path: &Path) -> io::Result<File> {
    find(path, OFlag::O_DIRECTORY)
}

/// Opens `path` as seen by process `pid` with the root directory `root`, with the checks of
/// [`open_regular`].
///
/// # Errors
/// Returns the errors of [`open_regular`].
pub fn open_regular_beneath(root: &File, pid: u32, path: &Path) -> io::Result<File> {
    reopen(&find_beneath(root, path, OFlag::empty())?, pid)
}

/// As [`open_regular_in_root`], for a file written by process `pid` itself in a directory where
/// other users may have created one of that name: the last component must not be a symbolic link,
/// and the owner must be one of the process's users or root.
///
/// # Errors
/// Returns the errors of [`open_regular`], `PermissionDenied` if another user owns the file, or the
/// system's error if the process has exited.
pub fn open_own_in_root(pid: u32, path: &Path) -> io::Result<File> {
    let found = find_beneath(&root_of(pid)?, path, OFlag::O_NOFOLLOW)?;
    let file = reopen(&found, pid)?;
    let owner = file.metadata()?.uid();
    let status = proc::status(pid)?;
    let users = [0, status.ruid, status.euid, status.suid, status.fuid];
    if !users.contains(&owner) {
        let why = format!("it belongs to user {owner}, not to the process's");
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    Ok(file)
}

/// Opens for reading a file found through process `pid` (`O_PATH`), if its file system is trusted.
fn reopen(place: &File, pid: u32) -> io::Result<File> {
    mounts::check(place, pid)?;
    open_found(place)
}

/// Opens for reading a file found with `O_PATH`, on any file system.
fn open_found(place: &File) -> io::Result<File> {
    if !place.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if MADE_UP.contains(&fstatfs(place)?.filesystem_type()) {
        return Err(io::Error::other("it is no file of a disk"));
    }
    // The holder of a lease can block an open for 45 seconds.
    let without_waiting = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    File::options()
        .read(true)
        .custom_flags(without_waiting.bits())
        .open(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    use nix::pty::openpty;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::sys::signal::{SigHandler, Signal, signal};
    use nix::sys::stat::Mode;
    use nix::unistd::{mkfifo, ttyname};

    use super::*;

    fn both(path: &Path) -> [io::Result<File>; 2] {
        [
            open_regular(path),
            open_regular_in_root(std::process::id(), path),
        ]
    }

    #[test]
    fn files_are_opened_and_devices_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "text").unwrap();
        symlink("file", &link).unwrap();
        for opened in both(&link) {
            assert_eq!(io::read_to_string(opened.unwrap()).unwrap(), "text");
        }
        // A terminal is a device that any user can create.
        let terminal = openpty(None, None).unwrap();
        let node = ttyname(&terminal.slave).unwrap();
        let device = folder.path().join("device");
        symlink(&node, &device).unwrap();
        let watch = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        watch.add_watch(&node, AddWatchFlags::IN_OPEN).unwrap();
        let us = format!("/proc/{}/", std::process::id());
        let made_up = ["status", "mem"].map(|name| Path::new(&us).join(name));
        for path in [device, folder.path().into()].iter().chain(&made_up) {
            for opened in both(path) {
                let error = opened.unwrap_err().to_string();
                assert!(error.starts_with("it is no "), "{path:?}: {error}");
            }
        }
        let opened = watch.read_events();
        assert_eq!(opened.unwrap_err(), nix::errno::Errno::EAGAIN);
        // Opening it would have been noticed.
        File::open(&node).unwrap();
        assert_eq!(watch.read_events().unwrap().len(), 1);
    }

    #[test]
    fn a_device_is_no_text() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it is no regular file");
    }

    #[test]
    fn files_of_other_users_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "text").unwrap();
        symlink("file", &link).unwrap();
        let open = |path: &Path| open_own_in_root(std::process::id(), path);
        assert_eq!(io::read_to_string(open(&file).unwrap()).unwrap(), "text");
        let error = open(&link).unwrap_err().to_string();
        assert_eq!(error, "it is no regular file");
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(4_241), None).unwrap();
            let error = open(&file).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        }
        assert!(open_own_in_root(u32::MAX, &file).is_err());
    }

    #[test]
    fn a_file_opened_by_its_path_is_the_one_that_is_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libx.so");
        fs::write(&path, b"text").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let (device, inode) = (metadata.dev(), metadata.ino());
        let is_opened = |device, inode, name: &str| {
            let path = folder.path().join(name);
            open_by_path(std::process::id(), (device, inode), &path).is_ok()
        };
        let other = nix::sys::stat::makedev(nix::sys::stat::major(device) + 1, 0);
        assert!(is_opened(device, inode, "libx.so"));
        assert!(!is_opened(device, inode + 1, "libx.so"), "another file");
        assert!(!is_opened(other, inode, "libx.so"), "another device");
        assert!(!is_opened(device, inode, "none"));
    }

    #[test]
    fn leases_do_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let begin = Instant::now();
        let fifo = folder.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        assert!(both(&fifo).iter().all(Result::is_err));
        let leased = folder.path().join("leased");
        let holder = File::create_new(&leased).unwrap();
        // SIGIO, which reports the conflicting open, would end the test. SAFETY: no handler is
        // installed, and the descriptor is open.
        #[allow(unsafe_code)]
        let leases = unsafe {
            signal(Signal::SIGIO, SigHandler::SigIgn).unwrap();
            let (set, lease) = (nix::libc::F_SETLEASE, nix::libc::F_WRLCK);
            nix::libc::fcntl(holder.as_raw_fd(), set, lease)
        };
        assert_eq!(leases, 0);
        for opened in both(&leased) {
            assert_eq!(opened.unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn files_of_huge_pages_are_refused() {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB;
        let Ok(file) = memfd_create(c"huge", flags) else {
            let systems = fs::read_to_string("/proc/filesystems").unwrap();
            assert!(!systems.contains("hugetlbfs"), "there are huge pages");
            return;
        };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert!(open_regular(Path::new(&path)).is_err());
        let error = open_input(Path::new(&path)).unwrap_err();
        assert_eq!(error.to_string(), "it is no file of a disk");
    }
}
