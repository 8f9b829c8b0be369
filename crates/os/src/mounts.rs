//! Trust in file systems: opening, closing or stating a file on a file system served by an
//! untrusted process (FUSE) can block for as long as that process likes, and cannot be interrupted.
//!
//! Files mapped by a traced process are therefore first located with `O_PATH`, which does not
//! contact the server; the kernel reports the mount, and the lists of mounts describe it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::makedev;

/// Bytes that are read of a process's mount list: it may have 100,000 entries.
const LIMIT: u64 = 4 << 20;
/// `ioctl` on a namespace that returns the owning user namespace.
const NS_GET_USERNS: libc::c_ulong = 0xb701;

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

/// The error for a file on an untrusted file system.
pub(crate) fn foreign() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, Foreign)
}

/// Whether a file was not opened because its file system is not trusted.
pub fn is_foreign(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(<dyn std::error::Error + Send + Sync>::is::<Foreign>)
}

#[derive(Debug)]
struct Foreign;

impl std::error::Error for Foreign {}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "it is on a file system that another user serves or has mounted"
        )
    }
}

/// Checks that `place`, an `O_PATH` descriptor found through process `pid`, is on a trusted file
/// system.
///
/// # Errors
/// Returns an error for which [`is_foreign`] is true, or the system's error.
pub(crate) fn check(place: &File, pid: u32) -> io::Result<()> {
    if all_are_trusted() {
        return Ok(());
    }
    let found = MountPoint::of(place)?;
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let own = own.current()?;
    let is_trusted = match own.by_id(found.mount) {
        Some(mount) => own.are_trusted(mount),
        None => of_process(pid, &found, own),
    };
    if is_trusted { Ok(()) } else { Err(foreign()) }
}

/// Whether a mount outside of gpuprobe's mount namespace is trusted.
fn of_process(pid: u32, found: &MountPoint, own: &Mounts) -> bool {
    let theirs = Mounts::of(pid).unwrap_or_default();
    let by_device = |device| {
        own.by_device(device)
            .is_some_and(|mount| own.are_trusted(mount))
    };
    match theirs.by_id(found.mount) {
        // Mounted in a namespace of gpuprobe's user namespace, as in most containers.
        Some(mount) if is_of_our_users(pid) => theirs.are_trusted(mount),
        Some(mount) => by_device(mount.device),
        // It is unmounted, or the process sees only a part of its namespace.
        None => by_device(found.device) || KERNELS.contains(&found.device),
    }
}

/// Devices of the kernel's internal in-memory file systems (memfd, shared memory), which are
/// mounted nowhere.
static KERNELS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let device = |flags| {
        let file = memfd_create(c"device", MFdFlags::MFD_CLOEXEC | flags).ok()?;
        Some(File::from(file).metadata().ok()?.dev())
    };
    let kinds = [MFdFlags::empty(), MFdFlags::MFD_HUGETLB];
    kinds.into_iter().filter_map(device).collect()
});

/// Whether the mount namespace of process `pid` belongs to gpuprobe's user namespace.
fn is_of_our_users(pid: u32) -> bool {
    let owner = || {
        let namespace = File::open(format!("/proc/{pid}/ns/mnt"))?;
        // SAFETY: the request takes no argument and returns a new descriptor.
        #[allow(unsafe_code)]
        let owner = unsafe {
            match libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) {
                -1 => return Err(io::Error::last_os_error()),
                number => File::from(OwnedFd::from_raw_fd(number)),
            }
        };
        Ok((
            owner.metadata()?,
            File::open("/proc/self/ns/user")?.metadata()?,
        ))
    };
    owner().is_ok_and(|(owner, own)| (owner.dev(), owner.ino()) == (own.dev(), own.ino()))
}

/// Mount and device of a file, as the kernel reports them without contacting the server.
struct MountPoint {
    mount: u64,
    device: u64,
}

impl MountPoint {
    fn of(place: &File) -> io::Result<Self> {
        let mut status = MaybeUninit::<libc::statx>::zeroed();
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        let wanted = libc::STATX_INO | libc::STATX_MNT_ID;
        // SAFETY: the path is a C string, and the buffer has the size of the result, for which all
        // bytes are valid.
        #[allow(unsafe_code)]
        let status = unsafe {
            let number = place.as_raw_fd();
            match libc::statx(number, c"".as_ptr(), flags, wanted, status.as_mut_ptr()) {
                0 => status.assume_init(),
                _ => return Err(io::Error::last_os_error()),
            }
        };
        Ok(Self {
            mount: status.stx_mnt_id,
            device: makedev(status.stx_dev_major.into(), status.stx_dev_minor.into()),
        })
    }
}

/// Mounts of gpuprobe's own namespace.
static OWN: LazyLock<Mutex<Own>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Own {
    list: Option<File>,
    mounts: Mounts,
}

impl Own {
    /// The current mounts: polling the list tells when it has changed.
    fn current(&mut self) -> io::Result<&Mounts> {
        let is_new = self.list.is_none();
        let list = match &mut self.list {
            Some(list) => list,
            list => list.insert(File::open("/proc/self/mountinfo")?),
        };
        let mut changes = [PollFd::new(list.as_fd(), PollFlags::POLLPRI)];
        let has_changed = poll(&mut changes, PollTimeout::ZERO)? > 0;
        if is_new || has_changed {
            list.rewind()?;
            let mut text = Vec::new();
            list.read_to_end(&mut text)?;
            self.mounts = Mounts::parse(&text);
        }
        Ok(&self.mounts)
    }
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    device: u64,
    /// Mount point.
    point: PathBuf,
    kind: Vec<u8>,
    options: Vec<u8>,
}

/// The mounts of a namespace.
#[derive(Debug, Default)]
struct Mounts {
    all: Vec<Mount>,
    ids: HashMap<u64, usize>,
    devices: HashMap<u64, usize>,
}

impl Mounts {
    fn of(pid: u32) -> io::Result<Self> {
        let mut text = Vec::new();
        let list = File::open(format!("/proc/{pid}/mountinfo"))?;
        list.take(LIMIT).read_to_end(&mut text)?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &[u8]) -> Self {
        let lines = text.split(|&byte| byte == b'\n');
        let all: Vec<_> = lines.filter_map(Mount::parse).collect();
        let numbered = || all.iter().enumerate();
        Self {
            ids: numbered().map(|(at, mount)| (mount.id, at)).collect(),
            devices: numbered().map(|(at, mount)| (mount.device, at)).collect(),
            all,
        }
    }

    fn by_id(&self, id: u64) -> Option<&Mount> {
        self.all.get(*self.ids.get(&id)?)
    }

    fn by_device(&self, device: u64) -> Option<&Mount> {
        self.all.get(*self.devices.get(&device)?)
    }

    /// Whether a file system is served by the kernel or by root, and so are all its layers.
    fn are_trusted(&self, mount: &Mount) -> bool {
        let mut layers = mount.layers();
        mount.is_roots() && layers.all(|path| self.holding(&path).is_none_or(Mount::is_roots))
    }

    /// The mount that contains a path, compared as text.
    fn holding(&self, path: &Path) -> Option<&Mount> {
        let holding = self
            .all
            .iter()
            .filter(|mount| path.starts_with(&mount.point));
        holding.max_by_key(|mount| mount.point.as_os_str().len())
    }
}

impl Mount {
    /// Parses `36 35 98:0 /root /point options... - kind source options`, with any number of words
    /// before the dash.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|&byte| byte == b' ');
        let text = |word| str::from_utf8(word).ok();
        let id = text(words.next()?)?.parse().ok()?;
        let (major, minor) = text(words.nth(1)?)?.split_once(':')?;
        let point = unescaped(words.nth(1)?);
        words.find(|word| *word == b"-")?;
        let kind = words.next()?.to_vec();
        let options = words.nth(1).unwrap_or_default().to_vec();
        Some(Self {
            id,
            device: makedev(major.parse().ok()?, minor.parse().ok()?),
            point: PathBuf::from(OsStr::from_bytes(&point)),
            kind,
            options,
        })
    }

    fn options(&self) -> impl Iterator<Item = &[u8]> {
        self.options.split(|&byte| byte == b',')
    }

    /// Whether it is not a FUSE file system served by a user other than root.
    fn is_roots(&self) -> bool {
        !self.kind.starts_with(b"fuse") || self.options().any(|option| option == b"user_id=0")
    }

    /// Layers of an overlay file system.
    fn layers(&self) -> impl Iterator<Item = PathBuf> {
        let is_overlay = self.kind == b"overlay";
        let options = self.options().filter(move |_| is_overlay);
        let layers = options.filter_map(|option| {
            let names: [&[u8]; 4] = [b"lowerdir=", b"lowerdir+=", b"datadir+=", b"upperdir="];
            names.into_iter().find_map(|name| option.strip_prefix(name))
        });
        let layers = layers.flat_map(|paths| paths.split(|&byte| byte == b':'));
        layers.map(|path| PathBuf::from(OsStr::from_bytes(&unescaped(path))))
    }
}

/// Decodes the octal escapes (`\040`) of space and other bytes.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let byte =
            digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        plain.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    plain
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    fn place(path: &str) -> File {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_PATH);
        options.open(path).unwrap()
    }

    #[test]
    fn file_systems_of_root_are_trusted() {
        let mounts = Mounts::parse(
            b"20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
              21 20 0:50 / /home/ada/my\\040music rw - fuse.sshfs host: rw,user_id=1000,group_id=1000\n\
              22 20 0:51 / /var/nydus rw - fuse.nydus n rw,user_id=0,group_id=0,allow_other\n\
              23 20 0:52 / /var/x/merged rw - overlay overlay rw,lowerdir=/var/nydus/a:/var/b,upperdir=/var/c\n\
              24 20 0:53 / /var/y/merged rw - overlay overlay rw,lowerdir=/var/b:/home/ada/my\\040music/lib\n\
              25 20 0:54 / /mnt rw - fuseblk /dev/sdb1 rw,user_id=0\n\
              nonsense\n",
        );
        let trusted = |id| mounts.are_trusted(mounts.by_id(id).unwrap());
        let found: Vec<_> = (20..26).map(trusted).collect();
        assert_eq!(found, [true, false, true, true, false, true]);
        assert_eq!(mounts.by_device(makedev(0, 51)).unwrap().id, 22);
        let holding = mounts.holding(Path::new("/var/nydus2/a")).unwrap();
        assert_eq!(holding.point, Path::new("/"));
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
        assert!(is_of_our_users(pid));
        let unknown = MountPoint {
            mount: u64::MAX,
            device: u64::MAX,
        };
        assert!(!of_process(pid, &unknown, &Mounts::of(pid).unwrap()));
    }
}
