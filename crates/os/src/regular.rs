//! Opening of files chosen by a traced process: only regular files are opened, and other types are
//! left untouched.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::statfs::{self, FsType, fstatfs};

use crate::mounts;
use crate::proc;

/// Virtual file systems, and huge pages. They contain no code, and opening or reading a file there may consume data
/// (`kmsg`, `trace_pipe`) or use the privileges of the reader.
const MADE_UP: &[FsType] = &[
    statfs::PROC_SUPER_MAGIC,
    statfs::SYSFS_MAGIC,
    statfs::DEBUGFS_MAGIC,
    statfs::TRACEFS_MAGIC,
    statfs::SECURITYFS_MAGIC,
    statfs::SELINUX_MAGIC,
    statfs::SMACK_MAGIC,
    statfs::CGROUP_SUPER_MAGIC,
    statfs::CGROUP2_SUPER_MAGIC,
    statfs::BPF_FS_MAGIC,
    statfs::RDTGROUP_SUPER_MAGIC,
    // A page that such a file has lost cannot be repaired in the mapping.
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
    reopen(&find(path)?, std::process::id())
}

/// As [`open_regular`], for files named by the user: untrusted file systems are allowed, since they
/// may be the user's own mounts.
///
/// # Errors
/// Returns the errors of [`open_regular`].
pub fn open_input(path: &Path) -> io::Result<File> {
    open_found(&find(path)?)
}

/// Opens the file that process `pid` has mapped in this address range, even if it was deleted or
/// replaced, with the checks of [`open_regular`].
///
/// # Errors
/// Returns the errors of [`open_regular`].
pub fn open_mapped(pid: u32, (start, end): (u64, u64)) -> io::Result<File> {
    let link = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    reopen(&find(link.as_ref())?, pid)
}

/// Opens the executable of process `pid`, with the checks of [`open_regular`].
///
/// # Errors
/// Returns the errors of [`open_regular`].
pub fn open_program(pid: u32) -> io::Result<File> {
    reopen(&find(format!("/proc/{pid}/exe").as_ref())?, pid)
}

fn find(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(OFlag::O_PATH.bits());
    options.open(path)
}

/// Maximum size of a text file that is read whole.
const MAX_TEXT: u64 = 256 << 20;

/// Reads the regular text file `path`, which the user has named.
///
/// # Errors
/// Returns the errors of [`open_input`], `FileTooLarge` for more than 256 MiB, or `InvalidData` if
/// it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_input(path)?
        .take(MAX_TEXT + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_TEXT {
        let why = "it has more than 256 MiB";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
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
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits()).open(path)
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
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
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
    fn long_texts_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "text").unwrap();
        assert_eq!(read_text(&path).unwrap(), "text");
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let error = read_text(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
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
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
        assert!(open_own_in_root(u32::MAX, &file).is_err());
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
            assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::WouldBlock);
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
        let error = open_regular(Path::new(&path)).unwrap_err();
        assert_eq!(error.to_string(), "it is no file of a disk");
    }
}
