//! Which of the libraries that were only guessed at may be loaded.
//!
//! A guess starts from something: a library or program that the process runs already, or a folder
//! that its user named. It often leads to folders where everybody may put things (a program in
//! `/tmp/build` has the prefix `/tmp`). So a library is loaded only if nobody can have put it there
//! who could not as well have put something else in the place of what the guess started from.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whose files are said to be that belong to users whom the user namespace does not know.
const OVERFLOW_UID: u32 = 65_534;

use libc::{S_IWGRP as GROUP_WRITES, S_IWOTH as OTHERS_WRITE};

/// A folder or file on the way from `/` to another.
#[derive(Clone, Copy, Debug)]
struct Part {
    uid: u32,
    gid: u32,
    /// With the bits of its type.
    mode: u32,
}

impl From<&Metadata> for Part {
    fn from(metadata: &Metadata) -> Self {
        Self {
            uid: metadata.uid(),
            gid: metadata.gid(),
            mode: metadata.mode(),
        }
    }
}

impl Part {
    /// Where others may put things, but only replace their own.
    fn is_sticky(self) -> bool {
        self.mode & (libc::S_IFMT | libc::S_ISVTX) == libc::S_IFDIR | libc::S_ISVTX
    }

    fn can_be_written_by(self, whom: u32) -> bool {
        self.mode & whom != 0
    }

    /// Its group is of one user, as many systems make one for each, or root's.
    fn has_private_group(self) -> bool {
        self.gid == 0 || self.gid == self.uid
    }
}

/// Who could have put something else in the place of what a guess started from.
#[derive(Debug, Default)]
struct Trusted {
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    everybody: bool,
}

impl Trusted {
    /// `parts` lead to the start.
    fn by(parts: &[Part], own_uid: u32) -> Self {
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

    /// Why whoever can change `part` may not have code run here. `above` is the folder it is in,
    /// `is_last_folder` is said of the one that the library is in.
    fn refusal(&self, part: Part, above: Option<Part>, is_last_folder: bool) -> Option<String> {
        let Part { uid, gid, .. } = part;
        let is_shared = |folder: Part| folder.can_be_written_by(GROUP_WRITES | OTHERS_WRITE);
        let is_anybodys = uid == OVERFLOW_UID && above.is_some_and(is_shared);
        if !self.users.contains(&uid) || is_anybodys {
            return Some(format!("belongs to user {uid}"));
        }
        // What is in it on our way is looked at by itself. What the library finds beside it is not.
        if part.is_sticky() && !is_last_folder {
            return None;
        }
        if part.can_be_written_by(OTHERS_WRITE) && !self.everybody {
            return Some("can be written to by everybody".to_owned());
        }
        let is_grouped = part.can_be_written_by(GROUP_WRITES) && !part.has_private_group();
        (is_grouped && !self.groups.contains(&gid))
            .then(|| format!("can be written to by group {gid}"))
    }
}

/// Where `library` really is, if it may be loaded because of one of `starts`, from which it was
/// guessed; else why not. What is there cannot be exchanged by others afterwards.
pub(super) fn resolve(library: &Path, starts: &[PathBuf], own_uid: u32) -> Result<PathBuf, String> {
    let unreadable = |error: io::Error| format!("it cannot be looked at: {error}");
    let path = fs::canonicalize(library).map_err(unreadable)?;
    let parts = parts(&path).map_err(unreadable)?;
    let mut why = "nothing led there".to_owned();
    for start in starts {
        let trusted = Trusted::by(&of_start(start), own_uid);
        match refusal(&path, &parts, &trusted) {
            None => return Ok(path),
            Some(refused) => why = refused,
        }
    }
    Err(why)
}

fn refusal(path: &Path, parts: &[Part], trusted: &Trusted) -> Option<String> {
    let mut above = None;
    for (left, &part) in (0..parts.len()).rev().zip(parts) {
        if let Some(why) = trusted.refusal(part, above, left == 1) {
            let name = path.ancestors().nth(left).unwrap_or(path).display();
            return Some(format!("others could have put it there: {name} {why}"));
        }
        above = Some(part);
    }
    None
}

/// `/`, and so on, to `path` itself, which has no links in it.
fn parts(path: &Path) -> io::Result<Vec<Part>> {
    let look = |part| fs::symlink_metadata(part).map(|found| Part::from(&found));
    let mut parts: Vec<_> = path.ancestors().map(look).collect::<io::Result<_>>()?;
    parts.reverse();
    Ok(parts)
}

/// Whatever leads to a start, itself included; a link to a program stands for the folder that it is in.
/// Nothing if the start is gone, or has another meaning wherever the process goes.
fn of_start(start: &Path) -> Vec<Part> {
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
    leading.extend(file.as_ref().map(Part::from));
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

    fn folder(uid: u32, gid: u32, mode: u32) -> Part {
        let mode = mode | libc::S_IFDIR;
        Part { uid, gid, mode }
    }

    fn file(uid: u32, gid: u32, mode: u32) -> Part {
        let mode = mode | libc::S_IFREG;
        Part { uid, gid, mode }
    }

    fn root() -> Part {
        folder(0, 0, 0o755)
    }

    fn tmp() -> Part {
        folder(0, 0, 0o1777)
    }

    /// Whether what `library` leads to may be loaded by a process that runs what `start` leads to.
    fn may_load(start: &[Part], library: &[Part]) -> bool {
        let path: PathBuf = std::iter::once("/")
            .chain(library.iter().skip(1).map(|_| "x"))
            .collect();
        refusal(&path, library, &Trusted::by(start, WE)).is_none()
    }

    #[test]
    fn what_others_plant_is_not_loaded() {
        let build = [root(), tmp(), folder(WE, WE, 0o755), file(WE, WE, 0o755)];
        for planted in [
            vec![tmp(), folder(OTHER, OTHER, 0o755), file(WE, WE, 0o755)],
            // A file of theirs, or one that they may write to.
            vec![folder(WE, WE, 0o755), file(OTHER, OTHER, 0o755)],
            vec![folder(WE, WE, 0o755), file(WE, WE, 0o757)],
            vec![folder(WE, WE, 0o755), file(WE, LAB, 0o775)],
            // A folder in which they may exchange ours.
            vec![folder(WE, WE, 0o777), file(WE, WE, 0o755)],
            vec![folder(WE, LAB, 0o775), file(WE, WE, 0o755)],
            vec![
                folder(OTHER, OTHER, 0o1777),
                folder(WE, WE, 0o755),
                file(WE, WE, 0o755),
            ],
            // What the library loads in turn could be theirs.
            vec![tmp(), file(WE, WE, 0o755)],
            vec![tmp(), folder(OVERFLOW_UID, 0, 0o755), file(0, 0, 0o755)],
        ] {
            let library = [vec![root()], planted].concat();
            assert!(!may_load(&build, &library), "{library:?}");
        }
    }

    #[test]
    fn what_the_users_of_the_running_code_have_is_loaded() {
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
        // Nix: root's, in a folder of its builders.
        let store = folder(0, 30_000, 0o1775);
        assert!(may_load(&own, &[root(), store, root(), file(0, 0, 0o444)]));
        // A friend's environment, once it is what runs.
        let friends = [
            root(),
            folder(FRIEND, FRIEND, 0o755),
            file(FRIEND, FRIEND, 0o755),
        ];
        assert!(!may_load(&own, &friends));
        assert!(may_load(&friends, &friends));
        // That of a lab.
        let of_lab = [
            root(),
            folder(FRIEND, LAB, 0o2775),
            file(FRIEND, LAB, 0o664),
        ];
        assert!(!may_load(&friends, &of_lab));
        assert!(may_load(&of_lab, &of_lab));
        // A disk that knows no owners, and a volume of a container.
        let open = [root(), folder(WE, WE, 0o777), file(WE, WE, 0o777)];
        assert!(may_load(&open, &open));
        assert!(!may_load(
            &open,
            &[root(), open[1], file(OTHER, OTHER, 0o777)]
        ));
    }

    #[test]
    fn in_a_user_namespace_the_files_of_the_machine_are_of_nobody() {
        let nobodys = folder(OVERFLOW_UID, OVERFLOW_UID, 0o755);
        let program = [nobodys, nobodys, file(OVERFLOW_UID, OVERFLOW_UID, 0o755)];
        assert!(may_load(&program, &program));
        // There, it could be anybody's.
        let shared = folder(OVERFLOW_UID, OVERFLOW_UID, 0o1777);
        assert!(!may_load(&program, &[nobodys, shared, nobodys, program[2]]));
        let own = [nobodys, shared, folder(WE, WE, 0o755), file(WE, WE, 0o755)];
        assert!(may_load(&program, &own));
    }

    #[test]
    fn links_lead_to_where_things_are() {
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
            // Who runs this as nobody has files that could be anybody's.
            OVERFLOW_UID => assert!(resolved.is_err()),
            _ => assert_eq!(resolved, Ok(expected)),
        }
        let gone = resolve(&link.join("none"), &[machine.path().into()], own_uid);
        assert!(gone.is_err());
        // Where the process is by now says nothing of where it was.
        assert!(of_start(Path::new("bin/python")).is_empty());
        assert!(of_start(Path::new("")).is_empty());
        assert_eq!(of_start(Path::new("/")).len(), 1);
    }
}
