//! Creation of output files.
//!
//! gpuprobe often runs as root in directories where other users can create files. Files are opened as the user who
//! called sudo, and as root only where that user may not. Output goes through no symbolic link of a third user, and
//! into no file that such a user has put there.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};

use crate::privileges::{User, invoker};

/// Maximum number of symbolic links of a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// First bytes of every SQLite database.
const SQLITE_MAGIC: [u8; 16] = *b"SQLite format 3\0";

/// Whether `path` is `-`, which stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens `path` for writing and truncates it; creates it if it does not exist. `-` is standard output.
///
/// # Errors
/// Returns the file system's error, `PermissionDenied` if another user has placed a link or a file there, or
/// `AlreadyExists` if it is an SQLite database: a recording must not be lost to a mistake in file name completion.
pub fn create(path: &Path) -> io::Result<File> {
    if is_stdout(path) {
        return io::stdout().as_fd().try_clone_to_owned().map(File::from);
    }
    as_user(invoker(), |user| overwrite(path, user)).map(|(file, _)| file)
}

/// Creates the file `path` and opens it for writing. Returns the user as whom that was done, too.
///
/// # Errors
/// Returns `AlreadyExists` if the name is taken, even by a symbolic link, or the file system's error.
pub fn create_new(path: &Path) -> io::Result<(File, User)> {
    as_user(invoker(), |user| {
        resolved(folder_of(path), user)?;
        File::create_new(path)
    })
}

/// Creates the directory `path` and its missing parents.
///
/// # Errors
/// Returns the file system's error, or `PermissionDenied` if another user has placed a link there.
pub fn create_folder(path: &Path) -> io::Result<()> {
    as_user(invoker(), |user| {
        resolved(path, user)?;
        fs::create_dir_all(path)
    })
    .map(drop)
}

/// Runs `action` as the user who called sudo; as ourselves if nobody did, if that user may not do it, as in `/root`, or
/// if we may not act as others.
fn as_user<T>(
    invoker: Option<&User>,
    action: impl Fn(&User) -> io::Result<T>,
) -> io::Result<(T, User)> {
    if let Some(user) = invoker {
        match user.act(|| action(user)) {
            None => {}
            Some(Err(error)) if error.kind() == ErrorKind::PermissionDenied => {}
            Some(done) => return Ok((done?, user.clone())),
        }
    }
    let own = User::own();
    Ok((action(&own)?, own))
}

/// Opens `path` as `user`, who is the current one.
fn overwrite(path: &Path, user: &User) -> io::Result<File> {
    let path = resolved(path, user)?;
    // Not for writing yet: that could wait for the reader of another's FIFO.
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let found: File = match open(&path, flags, Mode::empty()) {
        Ok(found) => found.into(),
        Err(Errno::ENOENT) => return File::create_new(&path),
        Err(error) => return Err(error.into()),
    };
    if statfs(folder_of(&path)).is_ok_and(|system| system.filesystem_type() == PROC_SUPER_MAGIC) {
        return truncate(&path);
    }
    check_file(&path, &found, user)?;
    truncate(format!("/proc/self/fd/{}", found.as_raw_fd()).as_ref())
}

fn truncate(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).truncate(true);
    options.custom_flags(OFlag::O_NOCTTY.bits()).open(path)
}

/// `path` without symbolic links, each of which is root's or `user`'s. Links of `/proc` stay: an open file may have no
/// path.
fn resolved(path: &Path, user: &User) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        // The outermost leads to the others.
        let Some(link) = path.ancestors().filter(|part| part.is_symlink()).last() else {
            return Ok(path);
        };
        let folder = folder_of(link);
        if statfs(folder)?.filesystem_type() == PROC_SUPER_MAGIC {
            return Ok(path);
        }
        let owner = fs::symlink_metadata(link)?.uid();
        if ![0, user.uid].contains(&owner) {
            let name = Path::new(link.file_name().unwrap_or(link.as_os_str())).display();
            return refuse(format!("'{name}' is a symbolic link of user {owner}"));
        }
        let rest = path.strip_prefix(link).unwrap_or(Path::new(""));
        let target = folder.join(fs::read_link(link)?).join(rest);
        // Without the slash that joining nothing adds.
        path = target.components().collect();
    }
    Err(Errno::ELOOP.into())
}

/// Checks that the existing file is one to be written to.
fn check_file(path: &Path, found: &File, user: &User) -> io::Result<()> {
    let metadata = found.metadata()?;
    let owner = metadata.uid();
    let is_regular = metadata.is_file();
    // The owner of the folder can exchange everything in it anyway.
    let of_folder = fs::metadata(folder_of(path))?.uid();
    let is_trusted = [0, user.uid, of_folder].contains(&owner);
    if (is_regular || metadata.file_type().is_fifo()) && !is_trusted {
        return refuse(format!("it is a file of user {owner}"));
    }
    if is_regular && metadata.nlink() > 1 {
        return refuse("it has another name too (a hard link)".to_owned());
    }
    if is_regular && is_database(found) {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "it is an SQLite database, as recordings are; write to another file, or remove it first",
        ));
    }
    Ok(())
}

fn refuse<T>(why: String) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

/// The folder that contains the file `path`.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Whether a regular file, found with `O_PATH`, is an SQLite database; `false` if it cannot be read.
fn is_database(found: &File) -> bool {
    let mut begin = [0; SQLITE_MAGIC.len()];
    let opened = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()));
    opened.is_ok_and(|mut file| file.read_exact(&mut begin).is_ok() && begin == SQLITE_MAGIC)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
    use std::thread;

    use nix::unistd::{Uid, mkfifo};
    use tempfile::TempDir;

    use super::*;
    use crate::privileges;

    /// The user who calls sudo, and a third one.
    const USER: u32 = 12_345;
    const OTHER: u32 = 65_534;

    fn user() -> User {
        User {
            uid: USER,
            gid: 23_456,
            groups: vec![23_456, 23_457],
        }
    }

    fn folder(owner: u32, mode: u32) -> TempDir {
        let folder = TempDir::new().unwrap();
        chown(folder.path(), Some(owner), None).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
        folder
    }

    #[test]
    fn own_links_are_followed() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("a")).unwrap();
        fs::write(at("a/file"), "long text").unwrap();
        for (target, name) in [
            ("a", "to-a"),
            ("file", "a/to-file"),
            ("to-a/to-file", "twice"),
            ("a/absent", "to-absent"),
            ("loop", "loop"),
        ] {
            symlink(target, at(name)).unwrap();
        }
        for (name, reached) in [
            ("a/file", "a/file"),
            ("to-a/../to-a/file", "a/file"),
            ("twice", "a/file"),
            ("to-absent", "a/absent"),
            ("a/new", "a/new"),
        ] {
            create(&at(name)).unwrap().write_all(b"text").unwrap();
            assert_eq!(fs::read(at(reached)).unwrap(), b"text", "{name}");
            assert!(create_new(&at(name)).is_err(), "{name}");
        }
        // An open file without a path.
        let (mut reader, writer) = io::pipe().unwrap();
        let number = format!("/proc/self/fd/{}", writer.as_raw_fd());
        symlink(&number, at("to-pipe")).unwrap();
        for path in [number.as_ref(), at("to-pipe").as_ref()] {
            create(path).unwrap().write_all(b"text").unwrap();
            let mut read = [0; 4];
            reader.read_exact(&mut read).unwrap();
            assert_eq!(read, *b"text");
        }
        create(Path::new("/dev/null")).unwrap();
        for (name, error) in [
            ("loop", Errno::ELOOP),
            ("a", Errno::EISDIR),
            ("a/file/x", Errno::ENOTDIR),
            ("absent/x", Errno::ENOENT),
        ] {
            let found = create(&at(name)).unwrap_err();
            assert_eq!(found.raw_os_error(), Some(error as i32), "{name}");
        }
        create_folder(&at("to-a/b/c")).unwrap();
        assert!(at("a/b/c").is_dir());
    }

    #[test]
    fn databases_and_hard_links_are_left_alone() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("database"), [&SQLITE_MAGIC[..], b"rows"].concat()).unwrap();
        fs::write(at("file"), "precious").unwrap();
        fs::hard_link(at("file"), at("twice")).unwrap();
        for (name, why) in [("database", "SQLite"), ("twice", "hard link")] {
            let before = fs::read(at(name)).unwrap();
            let error = create(&at(name)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(fs::read(at(name)).unwrap(), before);
        }
    }

    #[test]
    fn nothing_is_written_through_what_others_have_planted() {
        if !Uid::effective().is_root() {
            return;
        }
        let (private, shared) = (TempDir::new().unwrap(), folder(0, 0o1777));
        let at = |name: &str| shared.path().join(name);
        let precious = private.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        for (target, name) in [
            (precious.as_path(), "link"),
            (&private.path().join("new"), "dangling"),
            (private.path(), "folder"),
        ] {
            symlink(target, at(name)).unwrap();
            lchown(at(name), Some(OTHER), None).unwrap();
        }
        fs::write(at("theirs"), "precious").unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        for name in ["theirs", "fifo"] {
            chown(at(name), Some(OTHER), None).unwrap();
        }
        for invoker in [None, Some(&user())] {
            for (name, why) in [
                ("link", "'link' is a symbolic link of user 65534"),
                ("dangling", "is a symbolic link of user 65534"),
                ("folder/precious", "'folder' is a symbolic link of user"),
                ("theirs", "it is a file of user 65534"),
                ("fifo", "it is a file of user 65534"),
            ] {
                let error = as_user(invoker, |user| overwrite(&at(name), user)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}");
                assert!(error.to_string().contains(why), "{name}: {error}");
            }
        }
        assert!(create_new(&at("folder/new")).is_err());
        assert!(create_folder(&at("folder")).is_err());
        for path in [&precious, &at("theirs")] {
            assert_eq!(fs::read(path).unwrap(), b"precious");
        }
        assert_eq!(fs::read_dir(private.path()).unwrap().count(), 1);
        // The owner of a folder may do with its files as they like.
        let home = folder(OTHER, 0o755);
        let theirs = home.path().join("theirs");
        fs::write(&theirs, "").unwrap();
        chown(&theirs, Some(OTHER), None).unwrap();
        create(&theirs).unwrap();
    }

    #[test]
    fn files_belong_to_the_user_and_to_root_where_the_user_may_not_write() {
        if !Uid::effective().is_root() {
            return;
        }
        let own = User::own();
        for (folder, owner) in [
            (folder(USER, 0o700), USER),
            (folder(0, 0o1777), USER),
            (folder(0, 0o755), 0),
            (folder(OTHER, 0o755), 0),
        ] {
            let path = folder.path().join("file");
            let write = || as_user(Some(&user()), |user| overwrite(&path, user)).unwrap();
            for _ in 0..2 {
                assert_eq!(write().1.uid, owner);
                assert_eq!(fs::metadata(&path).unwrap().uid(), owner);
            }
            // An existing file keeps its owner.
            chown(&path, Some(0), Some(0)).unwrap();
            assert_eq!(write().1.uid, 0);
            assert_eq!(fs::metadata(&path).unwrap().uid(), 0);
        }
        assert_eq!(User::own(), own);
        // In a container, root may lack the capabilities to act as others.
        let folder = folder(USER, 0o777);
        let path = folder.path().join("file");
        let write = move || {
            privileges::keep_only(&[]).unwrap();
            as_user(Some(&user()), |user| overwrite(&path, user)).unwrap()
        };
        assert_eq!(thread::spawn(write).join().unwrap().1.uid, 0);
    }
}
