//! Debugging information that is kept in a file of its own.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::Module;
use crate::elf::Headers;
use gpuprobe_os::bounded::read_at;
use gpuprobe_os::regular::{open_regular, open_regular_in_root};

/// Where distributions put debugging information.
pub(super) const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// Bytes of a debug link: a file name and a checksum.
const LINK_LIMIT: u64 = 4096;
/// Bytes of a file that a checksum is made of.
const CHECKED_LIMIT: u64 = 4 << 30;
/// Bytes that are read at once for a checksum.
const CHUNK: usize = 1 << 20;

/// The file with the debugging information of `module`, and its headers.
pub(super) fn find(module: &Module) -> Option<(File, Headers)> {
    let by_id = module.build_id().and_then(|id| by_build_id(module, id));
    by_id.or_else(|| by_link(module))
}

/// As the process would open `path`, or as we would: it may have ended, or be in a container
/// without debugging information. The path is of the process's choice, so either is opened only if
/// it is a file, and believed only if it is the right one.
fn open(module: &Module, path: &Path) -> impl Iterator<Item = (File, Headers)> {
    let in_root = open_regular_in_root(module.pid, path);
    let opened = [in_root, open_regular(path)];
    opened.into_iter().flatten().filter_map(|file| {
        let headers = Headers::read(&file).ok()?;
        Some((file, headers))
    })
}

fn by_build_id(module: &Module, id: &[u8]) -> Option<(File, Headers)> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("{DEBUG_FOLDER}/.build-id/{first:02x}/{rest}.debug");
    open(module, Path::new(&path)).find(|(_, headers)| headers.build_id.as_deref() == Some(id))
}

fn by_link(module: &Module) -> Option<(File, Headers)> {
    let file = module.file()?;
    let section = module.headers().ok()?.section(".gnu_debuglink")?;
    (section.size <= LINK_LIMIT).then_some(())?;
    let (name, checksum) = link(&read_at(file, section.offset, section.size)?)?;
    let folder = module.path.parent()?;
    let in_debug = Path::new(DEBUG_FOLDER).join(folder.strip_prefix("/").unwrap_or(folder));
    let candidates = [folder.into(), folder.join(".debug"), in_debug];
    let is_it = |(file, headers): &(File, Headers)| match (module.build_id(), &headers.build_id) {
        (Some(own), Some(other)) => own == other,
        _ => checksum_of(file) == Some(checksum),
    };
    let candidates = candidates.iter().map(|folder: &PathBuf| folder.join(&name));
    let others = candidates.filter(|path| *path != module.path);
    others
        .filter_map(|path| open(module, &path).find(is_it))
        .next()
}

/// The name and the checksum in a `.gnu_debuglink`.
fn link(bytes: &[u8]) -> Option<(PathBuf, u32)> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let name = Path::new(OsStr::from_bytes(&bytes[..end]));
    // A name, not a path that leads elsewhere.
    let is_name = name.file_name() == Some(name.as_os_str());
    let at = end.checked_add(1)?.checked_next_multiple_of(4)?;
    let checksum = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    is_name.then(|| (name.into(), u32::from_le_bytes(checksum)))
}

fn checksum_of(file: &File) -> Option<u32> {
    use std::os::unix::fs::FileExt;
    let mut hasher = crc32fast::Hasher::new();
    if file.metadata().ok()?.len() > CHECKED_LIMIT {
        return None;
    }
    let mut bytes = vec![0; CHUNK];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut bytes, offset).ok()?;
        if read == 0 {
            return Some(hasher.finalize());
        }
        hasher.update(&bytes[..read]);
        offset += u64::try_from(read).ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_names_with_checksums() {
        let expected = Some(("a.debug".into(), 0x0403_0201));
        assert_eq!(link(b"a.debug\0\x01\x02\x03\x04"), expected);
        let expected = Some(("ab".into(), 0x0403_0201));
        assert_eq!(link(b"ab\0\0\x01\x02\x03\x04"), expected);
        for damaged in [
            &b"../a\0\0\0\0\x01\x02\x03\x04"[..],
            b"a.debug",
            b"a.debug\0\x01",
            b"\0\0\0\0\x01\x02\x03\x04",
            b"",
        ] {
            assert_eq!(link(damaged), None);
        }
    }
}
