//! Probed and skipped files.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;

use anyhow::Error;

use crate::host::process::{Mapped, ProcessHandle};
use crate::host::{LibraryId, LibraryRole, Likeness, MappedLibrary};
use crate::probe::{ProbePoint, Purpose};
use libbpf_rs::Link;

/// Maximum number of probed files. Each takes three descriptors, or one per function without
/// multi-uprobes, and about 100 KiB of kernel memory.
const MAX_FILES: usize = 4096;
/// Maximum number of skipped files and mappings that are remembered. Beyond, they are forgotten and inspected again.
const MAX_REMEMBERED: usize = 1 << 14;
/// Maximum number of files with a warning.
const MAX_WARNINGS: usize = 20;

/// State of all files seen.
#[derive(Debug, Default)]
pub(super) struct ProbedFiles {
    files: HashMap<LibraryId, KnownFile>,
    /// Mappings of probed files, by the numbers in `maps`.
    mapped: HashMap<LibraryId, LibraryId>,
    /// What was said: the same file fails in every process.
    warnings: HashSet<String>,
}

#[derive(Debug)]
struct KnownFile {
    role: LibraryRole,
    likeness: Likeness,
    in_overlay: bool,
    /// `None` if it is skipped.
    probed: Option<ProbedFile>,
}

/// A probed file.
#[derive(Debug)]
pub(super) struct ProbedFile {
    pub(super) owner: u32,
    /// Path at which a process had it mapped.
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Its probes, but for those of some times only.
    pub(super) links: Vec<Link>,
    /// What is probed at some times, and the probes on it while there are some: device queries, or the hooks of allocators.
    pub(super) timed: (Purpose, Vec<ProbePoint>),
    pub(super) timed_links: Vec<Link>,
    /// When they were attached, on `CLOCK_BOOTTIME`.
    pub(super) attached_ns: u64,
    /// A process that has it mapped, if known.
    pub(super) user: Option<ProcessHandle>,
}

impl ProbedFile {
    fn into_links(mut self) -> Vec<Link> {
        self.links.append(&mut self.timed_links);
        self.links
    }
}

impl ProbedFiles {
    /// The probed file of which `mapped` is a mapping.
    pub(super) fn probed(&mut self, mapped: &Mapped) -> Option<&mut ProbedFile> {
        let library = self.mapped.get(&mapped.id())?;
        self.files.get_mut(library)?.probed.as_mut()
    }

    /// The file that is the same as `library`, under its number or seen through another overlay, if it is probed or
    /// skipped.
    pub(super) fn find(&self, library: &MappedLibrary) -> Option<LibraryId> {
        let id = library.id();
        // The number of a deleted file may be given to another, unless it is probed.
        let is_it =
            |known: &KnownFile| known.probed.is_some() || known.likeness == library.likeness;
        if self.files.get(&id).is_some_and(is_it) {
            return Some(id);
        }
        let is_alike = |(_, known): &(&LibraryId, &KnownFile)| {
            (known.likeness, known.role) == (library.likeness, library.role)
                && (known.in_overlay || library.in_overlay)
        };
        self.files.iter().find(is_alike).map(|(other, _)| *other)
    }

    /// Records that `mapped` is a mapping of `library`, if that is probed.
    pub(super) fn note_mapping(&mut self, mapped: &Mapped, library: &MappedLibrary) {
        let probed = self
            .find(library)
            .filter(|id| self.files[id].probed.is_some());
        if let Some(probed) = probed {
            self.make_room();
            self.mapped.insert(mapped.id(), probed);
        }
    }

    /// Whether the maximum number of files is probed.
    pub(super) fn are_full(&self) -> bool {
        let probed = |known: &&KnownFile| known.probed.is_some();
        self.files.values().filter(probed).count() >= MAX_FILES
    }

    /// Records that `library` is probed, or skipped now and later.
    pub(super) fn enter(&mut self, library: &MappedLibrary, probed: Option<ProbedFile>) {
        self.make_room();
        let known = KnownFile {
            role: library.role,
            likeness: library.likeness,
            in_overlay: library.in_overlay,
            probed,
        };
        self.files.insert(library.id(), known);
    }

    /// All probed files.
    pub(super) fn all_probed(&mut self) -> impl Iterator<Item = (LibraryId, &mut ProbedFile)> {
        let all = self.files.iter_mut();
        all.filter_map(|(id, known)| Some((*id, known.probed.as_mut()?)))
    }

    /// The probed files without a known process that has them mapped: id, path and owner.
    pub(super) fn without_user(&mut self) -> Vec<(LibraryId, PathBuf, u32)> {
        let mut unused = Vec::new();
        for (id, probed) in self.all_probed() {
            probed.user = probed.user.filter(ProcessHandle::is_alive);
            if probed.user.is_none() {
                unused.push((id, probed.path.clone(), probed.owner));
            }
        }
        unused
    }

    /// Removes a probed file and its mappings, unless a process has it mapped by now. Returns its probes.
    pub(super) fn forget(&mut self, library: LibraryId) -> Option<Vec<Link>> {
        let probed = &mut self.files.get_mut(&library)?.probed;
        let probed = probed.take_if(|probed| probed.user.is_none())?;
        self.files.remove(&library);
        self.mapped.retain(|_, of| *of != library);
        tracing::info!(
            "{} is not in use any more: detaching",
            probed.path.display()
        );
        Some(probed.into_links())
    }

    /// Removes and returns the probes of all files.
    pub(super) fn take_links(&mut self) -> Vec<Link> {
        let probed = self.files.drain().filter_map(|(_, known)| known.probed);
        probed.flat_map(ProbedFile::into_links).collect()
    }

    /// Warns once of a file that is not fully probed, up to a maximum number.
    pub(super) fn warn(&mut self, what: &Error) {
        let what = format!("{what:#}");
        if self.warnings.len() > MAX_WARNINGS || self.warnings.contains(&what) {
            return tracing::debug!("{what}");
        }
        match self.warnings.len() == MAX_WARNINGS {
            true => tracing::warn!(
                "suppressing further warnings of this kind after {MAX_WARNINGS} files; \
                 GPUPROBE_LOG=debug shows all"
            ),
            false => tracing::warn!("{what}"),
        }
        self.warnings.insert(what);
    }

    fn make_room(&mut self) {
        if self.mapped.len() + self.files.len() >= MAX_REMEMBERED + MAX_FILES {
            self.mapped.clear();
            self.files.retain(|_, known| known.probed.is_some());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::host::{FileId, LibraryRole};
    use gpuprobe_cuda::Layer;

    fn libraries(folder: &tempfile::TempDir, count: usize) -> Vec<MappedLibrary> {
        let library = |number| {
            let path = folder.path().join(format!("libcuda.so.{number}"));
            std::fs::write(&path, "").unwrap();
            let mut library = MappedLibrary::open(&path, &path, DRIVER).unwrap();
            assert_eq!(library.owner, std::fs::metadata(&path).unwrap().uid());
            library.owner = 1000;
            library
        };
        (0..count).map(library).collect()
    }

    const DRIVER: LibraryRole = LibraryRole::Cuda(Layer::Driver);

    fn enter(files: &mut ProbedFiles, library: &MappedLibrary) {
        let probed = ProbedFile {
            owner: library.owner,
            path: library.path.clone(),
            file: library.file.try_clone().unwrap(),
            links: Vec::new(),
            timed: (Purpose::Calls, Vec::new()),
            timed_links: Vec::new(),
            attached_ns: 7,
            user: None,
        };
        files.enter(library, Some(probed));
    }

    #[test]
    fn no_more_files_are_probed_than_the_limit() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut library = libraries(&folder, 1).remove(0);
        let mut files = ProbedFiles::default();
        for number in 0..MAX_FILES as u64 {
            assert!(!files.are_full());
            library.id = FileId::numbered(number);
            enter(&mut files, &library);
        }
        assert!(files.are_full());
        assert!(files.forget(library.id()).is_some() && !files.are_full());
    }

    #[test]
    fn skipped_files_are_evicted_and_probed_ones_kept() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut all = libraries(&folder, 2);
        let mut files = ProbedFiles::default();
        enter(&mut files, &all[0]);
        files.enter(&all[1], None);
        assert!(files.find(&all[0]).is_some() && files.find(&all[1]).is_some());
        for number in 0..2 * MAX_REMEMBERED as u64 {
            let skipped = all[1].id;
            all[1].id = FileId::numbered(number);
            files.enter(&all[1], None);
            all[1].id = skipped;
        }
        all[1].in_overlay = false;
        assert!(files.find(&all[0]).is_some() && !files.files.contains_key(&all[1].id()));
        assert!(files.files.len() <= MAX_REMEMBERED + MAX_FILES);
    }

    #[test]
    fn each_role_of_a_file_has_its_own_state() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut library = libraries(&folder, 1).remove(0);
        let mut files = ProbedFiles::default();
        library.role = LibraryRole::Loader;
        files.enter(&library, None);
        let as_loader = Mapped::numbered(7, LibraryRole::Loader);
        files.note_mapping(&as_loader, &library);
        assert!(files.find(&library).is_some() && files.probed(&as_loader).is_none());
        library.role = DRIVER;
        library.in_overlay = true;
        assert!(files.find(&library).is_none());
        enter(&mut files, &library);
        assert!(files.probed(&as_loader).is_none());
    }

    #[test]
    fn a_file_is_the_same_through_any_overlay() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut library = libraries(&folder, 1).remove(0);
        let mut files = ProbedFiles::default();
        library.in_overlay = false;
        enter(&mut files, &library);
        let (first, mapped) = (library.id(), Mapped::numbered(7, DRIVER));
        library.id = FileId::numbered(7);
        assert_eq!(files.find(&library), None);
        library.in_overlay = true;
        assert_eq!(files.find(&library), Some(first));
        files.note_mapping(&mapped, &library);
        assert!(files.probed(&mapped).is_some());
    }

    #[test]
    fn a_later_file_with_the_number_of_a_skipped_one_is_not_known() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut all = libraries(&folder, 2);
        let mut library = all.remove(0);
        let before = library.likeness;
        let mut files = ProbedFiles::default();
        files.enter(&library, None);
        assert!(files.find(&library).is_some());
        library.likeness = all[0].likeness;
        assert!(files.find(&library).is_none());
        enter(&mut files, &library);
        library.likeness = before;
        assert!(
            files.find(&library).is_some(),
            "a probed file keeps its number"
        );
    }

    #[test]
    fn a_file_without_a_user_is_released() {
        let folder = tempfile::TempDir::new().unwrap();
        let all = libraries(&folder, 2);
        let mut files = ProbedFiles::default();
        let mapped = [0, 1].map(|number| Mapped::numbered(number, DRIVER));
        for (library, mapped) in all.iter().zip(&mapped) {
            enter(&mut files, library);
            files.note_mapping(mapped, library);
        }
        let unused = |files: &mut ProbedFiles| {
            let all = files.without_user().into_iter();
            let mut all: Vec<_> = all.map(|(_, path, owner)| (path, owner)).collect();
            all.sort();
            all
        };
        let described = |library: &MappedLibrary| (library.path.clone(), 1000);
        assert_eq!(unused(&mut files), [described(&all[0]), described(&all[1])]);
        let first = files.probed(&mapped[0]).unwrap();
        assert_eq!(first.attached_ns, 7);
        let mut user = ProcessHandle::of(std::process::id()).unwrap();
        first.user = Some(user);
        assert_eq!(unused(&mut files), [described(&all[1])]);
        assert!(files.forget(all[0].id()).is_none());
        user.pid = u32::MAX;
        files.probed(&mapped[0]).unwrap().user = Some(user);
        assert_eq!(unused(&mut files).len(), 2);
        assert!(files.forget(all[0].id()).is_some());
        assert!(files.find(&all[0]).is_none());
        assert!(files.probed(&mapped[0]).is_none() && files.probed(&mapped[1]).is_some());
    }

    #[test]
    fn warnings_are_limited_and_said_once() {
        let mut files = ProbedFiles::default();
        for number in (0..1000).flat_map(|number| [number; 2]) {
            files.warn(&anyhow::anyhow!("{number}"));
            assert!(files.warnings.len() <= MAX_WARNINGS + 1);
            assert_eq!(
                files.warnings.contains(&number.to_string()),
                number <= MAX_WARNINGS
            );
        }
    }
}
