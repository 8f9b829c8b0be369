//! Trust in libraries that were found by guessing.
//!
//! A guess is derived from an origin: a library or program that the process runs already, or a
//! directory that its user named. It often leads to directories that anybody can write to (a
//! program in `/tmp/build` has the prefix `/tmp`). So a library is loaded only if every user who
//! could have placed it there could as well have replaced the origin.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Owner of files whose users are not mapped into the user namespace.
const OVERFLOW_UID: u32 = 65_534;

use libc::{S_IWGRP as GROUP_WRITES, S_IWOTH as OTHERS_WRITE};

/// A directory or file on the path from `/` to another.
#[derive(Clone, Copy, Debug)]
struct PathComponent {
    uid: u32,
    gid: u32,
    /// Mode, including the file type.
    mode: u32,
}

impl From<&Metadata> for PathComponent {
    fn from(metadata: &Metadata) -> Self {
        Self {
            uid: metadata.uid(),
            gid: metadata.gid(),
            mode: metadata.mode(),
        }
    }
}

impl PathComponent {
    /// A directory in which users can replace only their own files.
    fn is_sticky(self) -> bool {
        self.mode & (libc::S_IFMT | libc::S_ISVTX) == libc::S_IFDIR | libc::S_ISVTX
    }

    fn can_be_written_by(self, whom: u32) -> bool {
        self.mode & whom != 0
    }

    /// Its group is root's, or a private group of its owner, which many systems create for each
    /// user.
    fn has_private_group(self) -> bool {
        self.gid == 0 || self.gid == self.uid
    }
}

/// Users who could have replaced the origin of a guess.
#[derive(Debug, Default)]
struct Trusted {
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    everybody: bool,
}

impl Trusted {
    /// Users who can change one of `parts`, the path to the origin.
    fn by(parts: &[PathComponent], own_uid: u32) -> Self {
        let mut trusted = Self {
            users: [0, own_uid].into(),
            ..Self::default()
        };
        for part in parts {
            trusted.users.insert(part.uid);
            if part.is_sticky() {
                continue;
            }
            if part.can_be_written_by(GROUP_WRITES) {
                trusted.groups.insert(part.gid);
            }
            trusted.everybody |= part.can_be_written_by(OTHERS_WRITE);
        }
        trusted
    }

    /// Reason why `part` makes the library untrusted. `above` is its directory; `is_last_folder` is
    /// true for the directory of the library.
    fn refusal(
        &self,
        part: PathComponent,
        above: Option<PathComponent>,
        is_last_folder: bool,
    ) -> Option<String> {
        let PathComponent { uid, gid, .. } = part;
        let is_shared =
            |folder: PathComponent| folder.can_be_written_by(GROUP_WRITES | OTHERS_WRITE);
        let is_anybodys = uid == OVERFLOW_UID && above.is_some_and(is_shared);
        if !self.users.contains(&uid) || is_anybodys {
            return Some(format!("belongs to user {uid}"));
        }
        // Entries on the path are checked separately. In the library's own directory, other files
        // that it loads are not.
        if part.is_sticky() && !is_last_folder {
            return None;
        }
        if part.can_be_written_by(OTHERS_WRITE) && !self.everybody {
            return Some("is writable by everybody".to_owned());
        }
        let is_grouped = part.can_be_written_by(GROUP_WRITES) && !part.has_private_group();
        (is_grouped && !self.groups.contains(&gid)).then(|| format!("is writable by group {gid}"))
    }
}

/// Resolves `library` if it may be loaded because of one of its origins, `starts`; otherwise
/// returns the reason. Untrusted users cannot replace the result afterwards.
pub(super) fn resolve(library: &Path, starts: &[PathBuf], own_uid: u32) -> Result<PathBuf, String> {
    let unreadable = |error: io::Error| format!("cannot stat it: {error}");
    let path = fs::canonicalize(library).map_err(unreadable)?;
    let parts = parts(&path).map_err(unreadable)?;
    let mut why = "no origin".to_owned();
    for start in starts {
        let trusted = Trusted::by(&of_start(start), own_uid);
        match refusal(&path, &parts, &trusted) {
            None => return Ok(path),
            Some(refused) => why = refused,
        }
    }
    Err(why)
}

fn refusal(path: &Path, parts: &[PathComponent], trusted: &Trusted) -> Option<String> {
    let mut above = None;
    for (left, &part) in (0..parts.len()).rev().zip(parts) {
        if let Some(why) = trusted.refusal(part, above, left == 1) {
            let name = path.ancestors().nth(left).unwrap_or(path).display();
            return Some(format!("untrusted path: {name} {why}"));
        }
        above = Some(part);
    }
    None
}

/// `/` and all further components of `path`, which has no symbolic links.
fn parts(path: &Path) -> io::Result<Vec<PathComponent>> {
    let look = |part| fs::symlink_metadata(part).map(|found| PathComponent::from(&found));
    let mut parts: Vec<_> = path.ancestors().map(look).collect::<io::Result<_>>()?;
    parts.reverse();
    Ok(parts)
}

/// All components of the path to an origin; a link to a program stands for its directory. Empty if
/// the origin is gone or relative.
fn of_start(start: &Path) -> Vec<PathComponent> {
    if !start.is_absolute() {
        return Vec::new();
    }
    let (folder, file) = match start.is_dir() {
        true => (Some(start), None),
        false => (start.parent(), fs::symlink_metadata(start).ok()),
    };
    let folder = folder.and_then(|folder| fs::canonicalize(folder).ok());
    let leading = folder.and_then(|folder| parts(&folder).ok());
    let mut leading = leading.unwrap_or_default();
    let file = file.filter(Metadata::is_file);
    leading.extend(file.as_ref().map(PathComponent::from));
    leading
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const WE: u32 = 1000;
    const FRIEND: u32 = 1001;
    const OTHER: u32 = 1002;
    const LAB: u32 = 5000;

    fn folder(uid: u32, gid: u32, mode: u32) -> PathComponent {
        let mode = mode | libc::S_IFDIR;
        PathComponent { uid, gid, mode }
    }

    fn file(uid: u32, gid: u32, mode: u32) -> PathComponent {
        let mode = mode | libc::S_IFREG;
        PathComponent { uid, gid, mode }
    }

    fn root() -> PathComponent {
        folder(0, 0, 0o755)
    }

    fn tmp() -> PathComponent {
        folder(0, 0, 0o1777)
    }

    /// Whether a library with these components may be loaded by a process that runs `start`.
    fn may_load(start: &[PathComponent], library: &[PathComponent]) -> bool {
        let path: PathBuf = std::iter::once("/")
            .chain(library.iter().skip(1).map(|_| "x"))
            .collect();
        refusal(&path, library, &Trusted::by(start, WE)).is_none()
    }

    #[test]
    fn planted_libraries_are_not_loaded() {
        let build = [root(), tmp(), folder(WE, WE, 0o755), file(WE, WE, 0o755)];
        for planted in [
            vec![tmp(), folder(OTHER, OTHER, 0o755), file(WE, WE, 0o755)],
            // A file that they own or can write to.
            vec![folder(WE, WE, 0o755), file(OTHER, OTHER, 0o755)],
            vec![folder(WE, WE, 0o755), file(WE, WE, 0o757)],
            vec![folder(WE, WE, 0o755), file(WE, LAB, 0o775)],
            // A directory in which they can replace our file.
            vec![folder(WE, WE, 0o777), file(WE, WE, 0o755)],
            vec![folder(WE, LAB, 0o775), file(WE, WE, 0o755)],
            vec![
                folder(OTHER, OTHER, 0o1777),
                folder(WE, WE, 0o755),
                file(WE, WE, 0o755),
            ],
            // A library that it loads in turn could be theirs.
            vec![tmp(), file(WE, WE, 0o755)],
            vec![tmp(), folder(OVERFLOW_UID, 0, 0o755), file(0, 0, 0o755)],
        ] {
            let library = [vec![root()], planted].concat();
            assert!(!may_load(&build, &library), "{library:?}");
        }
    }

    #[test]
    fn libraries_of_trusted_users_are_loaded() {
        let own = [root(), folder(WE, WE, 0o755), file(WE, WE, 0o755)];
        // User-private groups.
        let home = [root(), folder(WE, WE, 0o775), file(WE, WE, 0o664)];
        assert!(may_load(&own, &home));
        assert!(may_load(
            &own,
            &[root(), tmp(), folder(WE, WE, 0o755), file(WE, WE, 0o755)]
        ));
        assert!(may_load(
            &own,
            &[root(), folder(0, 0, 0o775), file(0, 0, 0o644)]
        ));
        // Nix: root's file, in a directory of its builders.
        let store = folder(0, 30_000, 0o1775);
        assert!(may_load(&own, &[root(), store, root(), file(0, 0, 0o444)]));
        // A friend's environment that is running already.
        let friends = [
            root(),
            folder(FRIEND, FRIEND, 0o755),
            file(FRIEND, FRIEND, 0o755),
        ];
        assert!(!may_load(&own, &friends));
        assert!(may_load(&friends, &friends));
        // The environment of a lab, likewise.
        let of_lab = [
            root(),
            folder(FRIEND, LAB, 0o2775),
            file(FRIEND, LAB, 0o664),
        ];
        assert!(!may_load(&friends, &of_lab));
        assert!(may_load(&of_lab, &of_lab));
        // A file system without owners, and a volume of a container.
        let open = [root(), folder(WE, WE, 0o777), file(WE, WE, 0o777)];
        assert!(may_load(&open, &open));
        assert!(!may_load(
            &open,
            &[root(), open[1], file(OTHER, OTHER, 0o777)]
        ));
    }

    #[test]
    fn files_of_the_host_belong_to_the_overflow_user_in_a_namespace() {
        let nobodys = folder(OVERFLOW_UID, OVERFLOW_UID, 0o755);
        let program = [nobodys, nobodys, file(OVERFLOW_UID, OVERFLOW_UID, 0o755)];
        assert!(may_load(&program, &program));
        // It could be anybody's.
        let shared = folder(OVERFLOW_UID, OVERFLOW_UID, 0o1777);
        assert!(!may_load(&program, &[nobodys, shared, nobodys, program[2]]));
        let own = [nobodys, shared, folder(WE, WE, 0o755), file(WE, WE, 0o755)];
        assert!(may_load(&program, &own));
    }

    #[test]
    fn links_are_resolved() {
        let machine = tempfile::TempDir::new().unwrap();
        let real = machine.path().join("real");
        fs::create_dir_all(&real).unwrap();
        fs::write(real.join("library"), "").unwrap();
        let link = machine.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let own_uid = fs::metadata(&real).unwrap().uid();
        let resolved = resolve(&link.join("library"), &[machine.path().into()], own_uid);
        let expected = fs::canonicalize(real.join("library")).unwrap();
        match own_uid {
            // A process of the overflow user cannot trust its own files.
            OVERFLOW_UID => assert!(resolved.is_err()),
            _ => assert_eq!(resolved, Ok(expected)),
        }
        let gone = resolve(&link.join("none"), &[machine.path().into()], own_uid);
        assert!(gone.is_err());
        // A relative path depends on a working directory that may have changed.
        assert!(of_start(Path::new("bin/python")).is_empty());
        assert!(of_start(Path::new("")).is_empty());
        assert_eq!(of_start(Path::new("/")).len(), 1);
    }
}
