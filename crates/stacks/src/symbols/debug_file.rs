//! Separate debug files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::Module;
use crate::reader::{FileReader, Opener, ReaderRequest, Wanted};

/// Debug folder of distributions.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// A search for a module's debug file.
pub(super) struct DebugFileSearch<'a> {
    pub(super) module: &'a Module,
    pub(super) reader: &'a FileReader,
    pub(super) opener: &'a Opener,
}

impl DebugFileSearch<'_> {
    /// The debug file of the module.
    pub(super) fn find(&self) -> Option<Module> {
        let by_id = self.module.build_id().and_then(|id| self.by_build_id(id));
        by_id.or_else(|| self.by_link())
    }

    /// Opens `path` in the root of the process and in gpuprobe's: the process may have ended, or run in a
    /// container without debug files. The traced process chooses the path, so a file is opened only if
    /// the owner of the module may read it, and used only if build id or checksum match.
    fn open(&self, path: &Path) -> impl Iterator<Item = Module> {
        let owner = self.module.numbered().map(|file| file.origin.owner());
        let roots = owner.map(|owner| [(Some(self.module.pid), owner), (None, owner)]);
        let roots = roots.into_iter().flatten();
        roots.filter_map(|(root, owner)| {
            let wanted = Wanted::At(path.as_os_str().as_bytes().to_vec(), root, owner);
            let file = self.opener.open(&wanted, None)?;
            let module = Module::of_file(path.to_owned(), file, self.reader);
            module.headers().is_ok().then_some(module)
        })
    }

    fn by_build_id(&self, id: &[u8]) -> Option<Module> {
        let path = path_of(id)?;
        self.first_that(self.open(&path), |found| found.build_id() == Some(id))
    }

    /// The file with what the debugging information in `file` has in common with that of others, as `dwz`
    /// makes it.
    pub(super) fn supplement(&self, file: &Module) -> Option<Module> {
        let numbered = file.numbered()?;
        let link: Option<(Vec<u8>, Vec<u8>)> = self
            .reader
            .ask(&[numbered], &ReaderRequest::AltLink(numbered.number))?;
        let (path, id) = link?;
        let beside = file.path.parent()?.join(OsStr::from_bytes(&path));
        let candidates = [Some(beside), path_of(&id)].into_iter().flatten();
        let is_it = |found: &Module| found.build_id() == Some(&*id);
        let mut found = candidates.filter_map(|path| self.first_that(self.open(&path), is_it));
        found.next()
    }

    fn by_link(&self) -> Option<Module> {
        let file = self.module.numbered()?;
        let link: Option<(Vec<u8>, u32)> = self
            .reader
            .ask(&[file], &ReaderRequest::DebugLink(file.number))?;
        let (name, checksum) = link?;
        let name = name_of(&name)?;
        let folder = self.module.path.parent()?;
        let in_debug = Path::new(DEBUG_FOLDER).join(folder.strip_prefix("/").unwrap_or(folder));
        let candidates = [folder.into(), folder.join(".debug"), in_debug];
        let is_it = |found: &Module| match (self.module.build_id(), found.build_id()) {
            (Some(own), Some(other)) => own == other,
            _ => self.checksum_of(found) == Some(checksum),
        };
        let candidates = candidates.iter().map(|folder: &PathBuf| folder.join(name));
        let others = candidates.filter(|path| *path != self.module.path);
        let mut found = others.filter_map(|path| self.first_that(self.open(&path), is_it));
        found.next()
    }

    /// The first that is meant; the reader does not keep those before it.
    fn first_that(
        &self,
        mut all: impl Iterator<Item = Module>,
        is_it: impl Fn(&Module) -> bool,
    ) -> Option<Module> {
        all.find(|found| {
            let is_it = is_it(found);
            if let Some(file) = found.numbered().filter(|_| !is_it) {
                self.reader.close(file);
            }
            is_it
        })
    }

    fn checksum_of(&self, found: &Module) -> Option<u32> {
        let file = found.numbered()?;
        self.reader
            .ask(&[file], &ReaderRequest::Checksum(file.number))?
    }
}

/// Where distributions put the debugging information of the file with this build id.
fn path_of(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{DEBUG_FOLDER}/.build-id/{first:02x}/{rest}.debug").into())
}

/// The bytes as a file name, without folders.
fn name_of(bytes: &[u8]) -> Option<&Path> {
    let name = Path::new(OsStr::from_bytes(bytes));
    (name.file_name() == Some(name.as_os_str())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_links_must_be_plain_names() {
        assert_eq!(name_of(b"a.debug"), Some(Path::new("a.debug")));
        for path in [&b"../a"[..], b"/etc/shadow", b"a/b", b"", b"..", b"a/"] {
            assert_eq!(name_of(path), None, "{path:?}");
        }
    }
}
