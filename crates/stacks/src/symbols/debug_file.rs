//! Separate debug files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::Module;
use crate::helper::{DebugLinks, FileReader, Opener, Request, Wanted};

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
        let by_id = self
            .module
            .build_id()
            .and_then(|id| self.by_build_id(id, []));
        by_id.or_else(|| self.by_link())
    }

    /// The file with what the debugging information in `file` has in common with that of others, as `dwz`
    /// makes it.
    pub(super) fn supplement(&self, file: &Module) -> Option<Module> {
        let (path, id) = self.links(file)?.alt?;
        let beside = file.path.parent()?.join(OsStr::from_bytes(&path));
        self.by_build_id(&id, [beside])
    }

    fn links(&self, file: &Module) -> Option<DebugLinks> {
        let file = file.numbered()?;
        self.reader.ask(&[file], &Request::Links(file.number))
    }

    /// The file with this build id, at one of these paths or where distributions put it.
    fn by_build_id(&self, id: &[u8], paths: impl IntoIterator<Item = PathBuf>) -> Option<Module> {
        let paths = paths.into_iter().chain(path_of(id));
        self.first_that(paths, |found| found.build_id() == Some(id))
    }

    fn by_link(&self) -> Option<Module> {
        let (name, checksum) = self.links(self.module)?.debug?;
        let name = name_of(&name)?;
        let folder = self.module.path.parent()?;
        let in_debug = Path::new(DEBUG_FOLDER).join(folder.strip_prefix("/").unwrap_or(folder));
        let folders = [folder.to_owned(), folder.join(".debug"), in_debug];
        let paths = folders.map(|folder| folder.join(name));
        let others = paths.into_iter().filter(|path| *path != self.module.path);
        self.first_that(others, |found| {
            match (self.module.build_id(), found.build_id()) {
                (Some(own), Some(other)) => own == other,
                _ => self.checksum_of(found) == Some(checksum),
            }
        })
    }

    /// The first file at one of these paths that is meant; the reader does not keep those before it.
    ///
    /// Each is opened in the root of the process and in gpuprobe's: the process may have ended, or run in a
    /// container without debug files. The traced process chooses the path, so a file is opened only if
    /// the owner of the module may read it, and used only if build id or checksum match.
    fn first_that(
        &self,
        paths: impl IntoIterator<Item = PathBuf>,
        is_it: impl Fn(&Module) -> bool,
    ) -> Option<Module> {
        let owner = self.module.numbered()?.origin.owner();
        for path in paths {
            for root in [Some(self.module.pid), None] {
                let wanted = Wanted::At(path.as_os_str().as_bytes().to_vec(), root, owner);
                let Some(file) = self.opener.open(&wanted, None) else {
                    continue;
                };
                let found = Module::of_file(path.clone(), file, self.reader);
                if found.headers().is_ok() && is_it(&found) {
                    return Some(found);
                }
                if let Some(file) = found.numbered() {
                    self.reader.close(file);
                }
            }
        }
        None
    }

    fn checksum_of(&self, found: &Module) -> Option<u32> {
        let file = found.numbered()?;
        self.reader.ask(&[file], &Request::Checksum(file.number))
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

    #[test]
    fn debug_files_of_distributions_are_found_by_build_id() {
        let path = path_of(&[0xab, 0x01, 0xef]);
        let expected = Path::new("/usr/lib/debug/.build-id/ab/01ef.debug");
        assert_eq!(path.as_deref(), Some(expected));
        assert_eq!(path_of(&[]), None);
    }

    use crate::elf::sample::ElfSample;
    use std::fs;

    fn sample(id: &[u8], section: &'static str, link: &[u8]) -> Vec<u8> {
        let mut sample = ElfSample::default().code(0x1000, &[0xc3]);
        if !id.is_empty() {
            sample = sample.build_id(id);
        }
        sample.section(section, 0, link).bytes()
    }

    /// The file found by what is in `library`, beside which are files with these names and contents.
    fn found(
        library: &[u8],
        others: &[(&str, &[u8])],
        is_supplement: bool,
    ) -> std::io::Result<Option<String>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("libx.so");
        fs::write(&path, library)?;
        fs::create_dir(folder.path().join(".debug"))?;
        for (name, bytes) in others {
            fs::write(folder.path().join(name), bytes)?;
        }
        let (reader, opener) = (FileReader::default(), Opener::default());
        let file = fs::File::open(&path)?;
        let module = Module::of_file(path, file, &reader);
        let search = DebugFileSearch {
            module: &module,
            reader: &reader,
            opener: &opener,
        };
        let found = match is_supplement {
            true => search.supplement(&module),
            false => search.find(),
        };
        let inside = |found: Module| {
            let inside = found.path.strip_prefix(folder.path());
            inside.map(|path| path.to_string_lossy().into_owned()).ok()
        };
        Ok(found.and_then(inside))
    }

    #[test]
    fn linked_debug_files_have_the_build_id_or_else_the_checksum() -> std::io::Result<()> {
        let with = |id: &[u8]| sample(id, "a", &[1]);
        let link = |checksum: u32| [b"libx.debug\0\0", &checksum.to_le_bytes()[..]].concat();
        let plain = with(&[]);
        let checksum = crc32fast::hash(&plain);
        for (own, checksum, debug, is_found) in [
            (&[][..], checksum, &plain, true),
            (&[], checksum + 1, &plain, false),
            (&[1; 8], checksum, &plain, true),
            (&[1; 8], 0, &with(&[1; 8]), true),
            (
                &[1; 8],
                crc32fast::hash(&with(&[2; 8])),
                &with(&[2; 8]),
                false,
            ),
            (&[], crc32fast::hash(b"text"), &b"text".to_vec(), false),
        ] {
            let library = sample(own, ".gnu_debuglink", &link(checksum));
            for name in ["libx.debug", ".debug/libx.debug"] {
                let expected = is_found.then(|| name.to_owned());
                assert_eq!(found(&library, &[(name, debug)], false)?, expected);
            }
        }
        let library = sample(&[], ".gnu_debuglink", &link(checksum));
        let others = [
            ("libx.debug", &with(&[3])[..]),
            (".debug/libx.debug", &plain),
        ];
        let second = Some(".debug/libx.debug".to_owned());
        assert_eq!(found(&library, &others, false)?, second);
        Ok(())
    }

    #[test]
    fn a_supplement_has_the_build_id_of_its_link() -> std::io::Result<()> {
        let library = sample(&[], ".gnu_debugaltlink", b"common.dwz\0\x05\x06");
        for (id, expected) in [(&[5, 6], Some("common.dwz".to_owned())), (&[5, 7], None)] {
            let common = sample(id, "a", &[1]);
            assert_eq!(found(&library, &[("common.dwz", &common)], true)?, expected);
        }
        assert_eq!(found(&sample(&[], "a", &[1]), &[], true)?, None);
        Ok(())
    }
}
