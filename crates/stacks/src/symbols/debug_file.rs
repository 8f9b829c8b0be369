//! Separate debug files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::helper::{DebugLinks, FileReader, OpenFile, ProcessReader, Request, Wanted};

/// Debug folder of distributions.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// A search for files with debugging information.
pub(super) struct DebugFileSearch<'a> {
    pub(super) reader: &'a FileReader,
    pub(super) opener: &'a ProcessReader,
    /// The process, and the user who may read the file: the owner of the module.
    pub(super) pid: u32,
    pub(super) owner: u32,
}

impl DebugFileSearch<'_> {
    /// The debug file of the module in `file`, which has this build id.
    pub(super) fn debug_file(&self, file: &OpenFile, id: Option<&[u8]>) -> Option<OpenFile> {
        let by_id = id.and_then(|id| self.first_that(path_of(id), Some(id), None));
        by_id.or_else(|| {
            let (name, checksum) = self.links(file)?.debug?;
            let name = name_of(&name)?;
            let folder = file.path.parent()?;
            let in_debug = Path::new(DEBUG_FOLDER).join(folder.strip_prefix("/").unwrap_or(folder));
            let folders = [folder.to_owned(), folder.join(".debug"), in_debug];
            let paths = folders.map(|folder| folder.join(name));
            let others = paths.into_iter().filter(|path| *path != file.path);
            self.first_that(others, id, Some(checksum))
        })
    }

    /// The file with what the debugging information in `file` has in common with that of others, as `dwz`
    /// makes it.
    pub(super) fn supplement(&self, file: &OpenFile) -> Option<OpenFile> {
        let (path, id) = self.links(file)?.alt?;
        let beside = file.path.parent()?.join(OsStr::from_bytes(&path));
        let paths = [beside].into_iter().chain(path_of(&id));
        self.first_that(paths, Some(&id), None)
    }

    fn links(&self, file: &OpenFile) -> Option<DebugLinks> {
        self.reader.ask(&[file], &Request::Links)
    }

    /// The first file at one of these paths that has this build id, or else this checksum.
    ///
    /// Each is opened in the root of the process and in gpuprobe's: the process may have ended, or run in a
    /// container without debug files. The traced process chooses the path, so a file is opened only if
    /// the owner of the module may read it, and used only if build id or checksum match.
    fn first_that(
        &self,
        paths: impl IntoIterator<Item = PathBuf>,
        id: Option<&[u8]>,
        checksum: Option<u32>,
    ) -> Option<OpenFile> {
        let request = Request::IsMeant(id.map(<[u8]>::to_vec), checksum);
        let roots = [Some(self.pid), None];
        let places = paths
            .into_iter()
            .flat_map(|path| roots.map(|root| (path.clone(), root)));
        let mut files = places.filter_map(|(path, root)| {
            let user = (self.owner, self.owner, Vec::new());
            let wanted = Wanted::At(path.as_os_str().as_bytes().to_vec(), root, user);
            OpenFile::new(self.opener.open(&wanted, None)?, &path)
        });
        files.find(|file| self.reader.ask(&[file], &request) == Some(true))
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

    use crate::Module;
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
        let (reader, opener) = (FileReader::default(), ProcessReader::default());
        let module = Module::of_file(path.clone(), fs::File::open(&path)?, &reader);
        let file = OpenFile::new(fs::File::open(&path)?, &path);
        let search = DebugFileSearch {
            reader: &reader,
            opener: &opener,
            pid: 0,
            owner: nix::unistd::getuid().as_raw(),
        };
        let found = file.and_then(|file| match is_supplement {
            true => search.supplement(&file),
            false => search.debug_file(&file, module.build_id()),
        });
        let inside = |found: OpenFile| {
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
