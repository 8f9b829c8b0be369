//! Other files that a file with debugging information names: the library opens what they say, from
//! our own root and whatever it is.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use object::elf;

use super::debug_file::DEBUG_FOLDER;
use crate::elf::{Headers, Section};
use gpuprobe_os::bounded::read_at;
use gpuprobe_os::regular::open_regular;

/// Bytes of such a link: a path and a build id.
const LIMIT: u64 = 8192;

/// Whether the library, when it reads the debugging information of `file`, would open a file that
/// is not of root's choice. It follows links to what the debugging information of several files
/// has in common, which distributions put below the folder for debugging information; and links to
/// the debugging information itself, which is looked for here.
pub(super) fn leads_elsewhere(headers: &Headers, file: &File) -> bool {
    headers.sections.iter().any(|section| match &*section.name {
        ".gnu_debuglink" | ".debug_sup" => true,
        ".gnu_debugaltlink" => !is_of_root(section, file),
        _ => false,
    })
}

fn is_of_root(link: &Section, file: &File) -> bool {
    let target = || {
        let is_plain = link.flags & elf::SHF_COMPRESSED.0 == 0 && link.size <= LIMIT;
        is_plain.then_some(())?;
        let bytes = read_at(file, link.offset, link.size)?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        // As the library finds it.
        let linker = fs::canonicalize(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some(linker.with_file_name(OsStr::from_bytes(&bytes[..end])))
    };
    target().is_some_and(|target| {
        let is_in = |path: &Path| path.starts_with(DEBUG_FOLDER);
        // Nobody but root can have either change from here on.
        is_in(&without_parents(&target))
            && fs::canonicalize(&target).is_ok_and(|found| is_in(&found))
            && open_regular(&target).is_ok()
    })
}

/// The path with each `..` taken back, and what it is taken back from.
fn without_parents(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn leads(name: &str, link: &[u8]) -> bool {
        let file = gpuprobe_os::bounded::file_of(link).unwrap();
        let section = Section {
            name: name.to_owned(),
            kind: 1,
            flags: 0,
            address: 0,
            offset: 0,
            size: u64::try_from(link.len()).unwrap(),
        };
        let headers = Headers {
            sections: vec![section],
            ..Headers::default()
        };
        leads_elsewhere(&headers, &file)
    }

    #[test]
    fn only_roots_own_folder_is_led_to() {
        assert!(!leads(".debug_info", b"/dev/null\0"));
        for link in ["a.debug", "/dev/null"] {
            assert!(leads(".gnu_debuglink", format!("{link}\0").as_bytes()));
            assert!(leads(".debug_sup", format!("{link}\0").as_bytes()));
        }
        for link in [
            "/dev/null",
            "/dev/watchdog",
            "../../dev/null",
            "/usr/lib/debug/../../../dev/null",
            "/usr/lib/debug/no such file",
            "/usr/lib/debug",
            "",
        ] {
            let link = format!("{link}\0build id");
            assert!(leads(".gnu_debugaltlink", link.as_bytes()), "{link}");
        }
        assert!(leads(".gnu_debugaltlink", b"/usr/lib/debug/endless"));
        let plain = without_parents(Path::new("/usr/lib/debug/./a/../../b"));
        assert_eq!(plain, Path::new("/usr/lib/b"));
    }
}
