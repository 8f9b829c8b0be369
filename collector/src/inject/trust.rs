//! Trust in libraries that were found near others.
//!
//! A library is loaded only if every user who could have placed it there could as well have
//! replaced what it was found near: a library that the process runs already, or a directory that
//! its user named.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Owner of files whose users are not mapped into the user namespace: in a shared directory, anybody.
const OVERFLOW_UID: u32 = 65_534;

/// Resolves `library` if it may be loaded because of `start`; otherwise returns the reason.
pub(super) fn resolve(library: &Path, start: &Path, own_uid: u32) -> Result<PathBuf, String> {
    let path = fs::canonicalize(library).map_err(|error| format!("cannot find it: {error}"))?;
    let start = fs::canonicalize(start).unwrap_or_default();
    let owner = |part| fs::symlink_metadata(part).ok().map(|found| found.uid());
    let trusted: BTreeSet<_> = start
        .ancestors()
        .filter_map(owner)
        .chain([0, own_uid])
        .collect();
    let mut parts: Vec<_> = path.ancestors().collect();
    let mut is_shared = false;
    while let Some(part) = parts.pop() {
        let refused = |why| format!("untrusted path: {} {why}", part.display());
        let found = fs::symlink_metadata(part).map_err(|error| refused(error.to_string()))?;
        let uid = found.uid();
        if !trusted.contains(&uid) || (is_shared && uid == OVERFLOW_UID) {
            return Err(refused(format!("belongs to user {uid}")));
        }
        is_shared = found.mode() & libc::S_IWOTH != 0;
        // With the sticky bit only owners can replace an entry, and these are looked at; but in the
        // library's own directory there may be others, which it loads in turn.
        let is_sticky = found.is_dir() && found.mode() & libc::S_ISVTX != 0;
        if is_shared && (!is_sticky || parts.len() == 1) {
            return Err(refused("is writable by everybody".to_owned()));
        }
    }
    Ok(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    // Other users' files are in `tests/e2e/collector.rs`, which needs root for them.
    #[test]
    fn links_are_resolved_and_shared_folders_refused() {
        let machine = tempfile::TempDir::new().unwrap();
        let real = machine.path().join("real");
        fs::create_dir(&real).unwrap();
        fs::write(real.join("library"), "").unwrap();
        let link = machine.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let own_uid = fs::metadata(&real).unwrap().uid();
        let resolve = |name| resolve(&link.join(name), &real, own_uid);
        assert_eq!(
            resolve("library"),
            Ok(fs::canonicalize(real.join("library")).unwrap())
        );
        assert!(resolve("none").is_err());
        for (part, mode) in [
            (real.join("library"), 0o646),
            (real.clone(), 0o1777),
            (real.clone(), 0o777),
        ] {
            let before = fs::metadata(&part).unwrap().permissions();
            fs::set_permissions(&part, Permissions::from_mode(mode)).unwrap();
            let why = resolve("library").unwrap_err();
            assert!(why.ends_with("is writable by everybody"), "{why}");
            fs::set_permissions(&part, before).unwrap();
        }
    }
}
