//! Probed and skipped files.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use anyhow::Error;

use crate::host::process::{Mapped, ProcessHandle};
use crate::host::{LibraryId, LibraryRole, Likeness, MappedLibrary};
use libbpf_rs::Link;

/// Maximum number of probed files. Each takes three descriptors, or one per function without
/// multi-uprobes, and about 100 KiB of kernel memory.
const MAX_FILES: usize = 4096;
/// Maximum number of skipped files and mappings in the cache. Beyond, it is cleared and they are
/// inspected again.
const MAX_REMEMBERED: usize = 1 << 16;
/// Maximum number of files with a warning.
const MAX_WARNINGS: usize = 20;

/// State of all files seen.
#[derive(Debug, Default)]
pub(super) struct ProbedFiles {
    probed: HashMap<LibraryId, ProbedFile>,
    /// With the likeness: the number of a deleted file may be given to another, unless it is probed.
    skipped: HashSet<(LibraryId, Likeness)>,
    /// One file per identity seen through overlays.
    alike: HashMap<(Likeness, LibraryRole), Alike>,
    /// Mappings of probed files, by the numbers in `maps`.
    mapped: HashMap<LibraryId, LibraryId>,
    failed: HashSet<LibraryId>,
    warnings: usize,
    refusals: HashSet<&'static str>,
}

/// State of a probed file.
#[derive(Debug)]
struct ProbedFile {
    owner: u32,
    /// Path at which a process had it mapped.
    path: PathBuf,
    /// Its probes.
    links: Vec<Link>,
    /// When they were attached, on `CLOCK_BOOTTIME`.
    attached_ns: u64,
    /// A process that has it mapped, if known.
    user: Option<ProcessHandle>,
}

#[derive(Clone, Copy, Debug)]
struct Alike {
    /// The file first seen with this identity.
    library: LibraryId,
    in_overlay: bool,
    is_probed: bool,
}

impl ProbedFiles {
    /// Whether `mapped` is a mapping of a probed file.
    pub(super) fn have_probed(&self, mapped: &Mapped) -> bool {
        self.mapped.contains_key(&mapped.id())
    }

    /// When the probes of a file were attached, on `CLOCK_BOOTTIME`.
    pub(super) fn attached_ns(&self, mapped: &Mapped) -> Option<u64> {
        let library = self.mapped.get(&mapped.id())?;
        Some(self.probed.get(library)?.attached_ns)
    }

    /// Records that `mapped` is a mapping of `library`, if that is probed.
    pub(super) fn note_mapping(&mut self, mapped: &Mapped, library: LibraryId, likeness: Likeness) {
        self.make_room();
        let alike = self.alike.get(&(likeness, mapped.role));
        let alike = alike.filter(|alike| alike.is_probed);
        let probed = match self.probed.contains_key(&library) {
            true => Some(library),
            false => alike.map(|alike| alike.library),
        };
        if let Some(probed) = probed {
            self.mapped.insert(mapped.id(), probed);
        }
    }

    /// Records that process `pid` has `mapped`, if it is a probed file.
    pub(super) fn note_user(&mut self, mapped: &Mapped, pid: u32) {
        let library = self.mapped.get(&mapped.id());
        if let Some(probed) = library.and_then(|library| self.probed.get_mut(library))
            && probed.user.is_none()
        {
            probed.user = ProcessHandle::of(pid).ok();
        }
    }

    /// Records that `mapped` could not be probed. Returns true the first time; the same file fails in
    /// every process.
    pub(super) fn failed(&mut self, mapped: &Mapped) -> bool {
        self.make_room();
        self.failed.insert(mapped.id())
    }

    /// Whether `library` is probed or skipped.
    pub(super) fn know(&self, library: &MappedLibrary) -> bool {
        let id = library.id();
        self.probed.contains_key(&id) || self.skipped.contains(&(id, library.likeness))
    }

    /// Whether `library` is a file seen before through another overlay.
    pub(super) fn is_probed_elsewhere(&self, library: &MappedLibrary) -> bool {
        let alike = self.alike.get(&(library.likeness, library.role));
        alike.is_some_and(|alike| alike.in_overlay || library.in_overlay)
    }

    /// The limit that prevents probing one more file, if one does.
    pub(super) fn refuse(&self) -> Option<&'static str> {
        let is_full = self.probed.len() >= MAX_FILES;
        is_full.then_some("the maximum number of probed libraries is reached")
    }

    /// Whether this refusal is the first of its kind.
    pub(super) fn is_first(&mut self, refusal: &'static str) -> bool {
        self.refusals.insert(refusal)
    }

    /// Records that `library` is probed since `attached_ns`.
    pub(super) fn enter(&mut self, library: &MappedLibrary, links: Vec<Link>, attached_ns: u64) {
        let probed = ProbedFile {
            owner: library.owner,
            path: library.path.clone(),
            links,
            attached_ns,
            user: None,
        };
        self.probed.insert(library.id(), probed);
        self.enter_alike(library, true);
    }

    /// Records that `library` is skipped, now and later.
    pub(super) fn skip(&mut self, library: &MappedLibrary) {
        self.make_room();
        self.skipped.insert((library.id(), library.likeness));
        self.enter_alike(library, false);
    }

    fn enter_alike(&mut self, library: &MappedLibrary, is_probed: bool) {
        let alike = Alike {
            library: library.id(),
            in_overlay: library.in_overlay,
            is_probed,
        };
        self.alike.insert((library.likeness, library.role), alike);
    }

    /// The probed files without a known process that has them mapped: id, path and owner.
    pub(super) fn without_user(&mut self) -> Vec<(LibraryId, PathBuf, u32)> {
        for probed in self.probed.values_mut() {
            probed.user = probed.user.filter(ProcessHandle::is_alive);
        }
        let unused = self
            .probed
            .iter()
            .filter(|(_, probed)| probed.user.is_none());
        let described = unused.map(|(id, probed)| (*id, probed.path.clone(), probed.owner));
        described.collect()
    }

    /// Removes a probed file and its mappings, unless a process has it mapped by now. Returns its probes.
    pub(super) fn forget(&mut self, library: LibraryId) -> Option<Vec<Link>> {
        let probed = self.probed.get(&library)?;
        if probed.user.is_some() {
            return None;
        }
        let probed = self.probed.remove(&library)?;
        self.alike.retain(|_, alike| alike.library != library);
        self.mapped.retain(|_, of| *of != library);
        tracing::info!(
            "{} is not in use any more: detaching",
            probed.path.display()
        );
        Some(probed.links)
    }

    /// Removes and returns the probes of all files.
    pub(super) fn take_links(&mut self) -> Vec<Link> {
        let all = self.probed.drain();
        all.flat_map(|(_, probed)| probed.links).collect()
    }

    /// Prints a warning about a file that is not fully probed, up to a maximum number.
    pub(super) fn warn(&mut self, what: &Error) {
        if self.may_warn() {
            tracing::warn!("{what:#}");
        } else {
            tracing::debug!("{what:#}");
        }
    }

    fn may_warn(&mut self) -> bool {
        self.warnings += 1;
        if self.warnings == MAX_WARNINGS + 1 {
            tracing::warn!(
                "suppressing further warnings of this kind after {MAX_WARNINGS} files; \
                 GPUPROBE_LOG=debug shows all"
            );
        }
        self.warnings <= MAX_WARNINGS
    }

    fn make_room(&mut self) {
        let remembered = self.mapped.len() + self.failed.len() + self.skipped.len();
        if remembered >= MAX_REMEMBERED {
            self.mapped.clear();
            self.failed.clear();
            self.skipped.clear();
            self.alike.retain(|_, alike| alike.is_probed);
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
        files.enter(library, Vec::new(), 7);
    }

    #[test]
    fn a_probed_file_is_known_and_a_refusal_is_reported_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut files = ProbedFiles::default();
        let library = libraries(&folder, 1).remove(0);
        enter(&mut files, &library);
        assert!(files.know(&library));
        assert_eq!(files.is_probed_elsewhere(&library), library.in_overlay);
        assert_eq!(files.refuse(), None);
        assert!(files.is_first("full") && !files.is_first("full"));
    }

    #[test]
    fn no_more_files_are_probed_than_the_limit() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut library = libraries(&folder, 1).remove(0);
        let mut files = ProbedFiles::default();
        for number in 0..MAX_FILES as u64 {
            assert_eq!(files.refuse(), None);
            library.id = FileId::numbered(number);
            enter(&mut files, &library);
        }
        assert!(files.refuse().is_some());
        assert!(files.forget(library.id()).is_some() && files.refuse().is_none());
    }

    #[test]
    fn skipped_files_are_evicted_and_probed_ones_kept() {
        let folder = tempfile::TempDir::new().unwrap();
        let all = libraries(&folder, 2);
        let mut files = ProbedFiles::default();
        enter(&mut files, &all[0]);
        files.skip(&all[1]);
        assert!(files.know(&all[0]) && files.know(&all[1]));
        for number in 0..2 * MAX_REMEMBERED as u64 {
            files.failed(&Mapped::numbered(number, DRIVER));
        }
        assert!(files.know(&all[0]) && !files.know(&all[1]));
        assert!(files.failed.len() <= MAX_REMEMBERED);
    }

    #[test]
    fn each_role_of_a_file_has_its_own_state() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut library = libraries(&folder, 1).remove(0);
        let mut files = ProbedFiles::default();
        library.role = LibraryRole::Loader;
        files.skip(&library);
        let as_loader = Mapped::numbered(7, LibraryRole::Loader);
        files.note_mapping(&as_loader, library.id(), library.likeness);
        assert!(files.failed(&as_loader) && !files.failed(&as_loader));
        assert!(files.know(&library) && !files.have_probed(&as_loader));
        library.role = DRIVER;
        library.in_overlay = true;
        let as_driver = Mapped::numbered(7, DRIVER);
        assert!(!files.know(&library) && !files.is_probed_elsewhere(&library));
        assert!(!files.have_probed(&as_driver) && files.failed(&as_driver));
    }

    #[test]
    fn a_later_file_with_the_number_of_a_skipped_one_is_not_known() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut all = libraries(&folder, 2);
        let mut library = all.remove(0);
        let mut files = ProbedFiles::default();
        files.skip(&library);
        assert!(files.know(&library));
        library.likeness = all[0].likeness;
        assert!(!files.know(&library));
        enter(&mut files, &library);
        library.likeness =
            MappedLibrary::open(&folder.path().join("libcuda.so.0"), "".as_ref(), DRIVER)
                .unwrap()
                .likeness;
        assert!(files.know(&library), "a probed file keeps its number");
    }

    #[test]
    fn a_file_without_a_user_is_released() {
        let folder = tempfile::TempDir::new().unwrap();
        let all = libraries(&folder, 2);
        let mut files = ProbedFiles::default();
        let mapped = [0, 1].map(|number| Mapped::numbered(number, DRIVER));
        for (library, mapped) in all.iter().zip(&mapped) {
            enter(&mut files, library);
            files.note_mapping(mapped, library.id(), library.likeness);
        }
        let unused = |files: &mut ProbedFiles| {
            let all = files.without_user().into_iter();
            let mut all: Vec<_> = all.map(|(_, path, owner)| (path, owner)).collect();
            all.sort();
            all
        };
        let described = |library: &MappedLibrary| (library.path.clone(), 1000);
        assert_eq!(unused(&mut files), [described(&all[0]), described(&all[1])]);
        assert_eq!(files.attached_ns(&mapped[0]), Some(7));
        files.note_user(&mapped[0], std::process::id());
        assert_eq!(unused(&mut files), [described(&all[1])]);
        assert!(files.forget(all[0].id()).is_none());
        let mut user = ProcessHandle::of(std::process::id()).unwrap();
        user.pid = u32::MAX;
        let probed = files.probed.get_mut(&all[0].id()).unwrap();
        probed.user = Some(user);
        assert_eq!(unused(&mut files).len(), 2);
        assert!(files.forget(all[0].id()).is_some());
        assert!(!files.know(&all[0]) && !files.is_probed_elsewhere(&all[0]));
        assert!(!files.have_probed(&mapped[0]) && files.have_probed(&mapped[1]));
    }

    #[test]
    fn warnings_are_limited() {
        let mut files = ProbedFiles::default();
        let said = (0..1000).filter(|_| files.may_warn()).count();
        assert_eq!(said, MAX_WARNINGS);
    }
}
