//! Which files are probed, and which are left alone.

use std::collections::{HashMap, HashSet};

use crate::host::process::MappingId;
use crate::host::{FileId, Library, Likeness};

/// Files that are probed in all. Each takes three descriptors, or one for each function where they
/// are probed one by one, and some 100 KiB of the kernel's memory.
const MAX_FILES: usize = 4096;
/// Those among them that belong to one user who is not root: anybody can make copies of a library.
/// Hosts with an environment for each of hundreds of jobs of a user stay below.
const MAX_OF_A_USER: usize = 512;
/// Files of which it is remembered that there is nothing to be done. Beyond, they are looked at
/// once more.
const MAX_REMEMBERED: usize = 1 << 16;
/// Files that the user is told of as not probed.
const MAX_WARNINGS: usize = 20;

/// What became of files.
#[derive(Debug, Default)]
pub(super) struct Files {
    probed: HashSet<FileId>,
    /// Those of them that are of each user.
    by_owner: HashMap<u32, usize>,
    left_alone: HashSet<FileId>,
    /// What they look like, and whether one of them was found through an overlay.
    alike: HashMap<Likeness, Alike>,
    looked_at: HashSet<MappingId>,
    failed: HashSet<MappingId>,
    warnings: usize,
    refusals: HashSet<&'static str>,
}

#[derive(Clone, Copy, Debug)]
struct Alike {
    in_overlay: bool,
    is_probed: bool,
}

impl Files {
    /// How many are probed.
    pub(super) fn probed(&self) -> usize {
        self.probed.len()
    }

    /// Whether what is mapped there needs no more attention.
    pub(super) fn are_done_with(&self, id: MappingId) -> bool {
        self.looked_at.contains(&id)
    }

    /// What is mapped there needs no more attention.
    pub(super) fn done_with(&mut self, id: MappingId) {
        self.make_room();
        self.looked_at.insert(id);
    }

    /// What is mapped there could not be probed; true if that is new. The same file fails in every
    /// process.
    pub(super) fn failed(&mut self, id: MappingId) -> bool {
        self.make_room();
        self.failed.insert(id)
    }

    /// Whether nothing is to be done about `library` any more.
    pub(super) fn know(&self, library: &Library) -> bool {
        self.probed.contains(&library.id) || self.left_alone.contains(&library.id)
    }

    /// Whether it is a file that we know, through another overlay.
    pub(super) fn know_by_looks(&self, library: &Library) -> bool {
        let alike = self.alike.get(&library.likeness);
        alike.is_some_and(|alike| alike.in_overlay || library.in_overlay)
    }

    /// Why there is no room to probe `library`, if so.
    pub(super) fn refuse(&self, library: &Library, is_crowded: bool) -> Option<&'static str> {
        let of_owner = self.by_owner.get(&library.owner).copied();
        if self.probed.len() >= MAX_FILES {
            Some("so many libraries are probed already that there is room for no more")
        } else if library.owner != 0 && of_owner.unwrap_or(0) >= MAX_OF_A_USER {
            Some("so many libraries of this user are probed already that there is room for no more")
        } else if is_crowded {
            Some("so many files are open that there is room for no more (ulimit -n)")
        } else {
            None
        }
    }

    /// Whether this refusal is the first of its kind.
    pub(super) fn is_first(&mut self, refusal: &'static str) -> bool {
        self.refusals.insert(refusal)
    }

    /// `library` is probed.
    pub(super) fn enter(&mut self, library: &Library) {
        if self.probed.insert(library.id) {
            *self.by_owner.entry(library.owner).or_default() += 1;
        }
        self.enter_looks(library, true);
    }

    /// `library` is left alone, now and later.
    pub(super) fn leave_alone(&mut self, library: &Library) {
        self.make_room();
        self.left_alone.insert(library.id);
        self.enter_looks(library, false);
    }

    fn enter_looks(&mut self, library: &Library, is_probed: bool) {
        let in_overlay = library.in_overlay;
        let alike = Alike {
            in_overlay,
            is_probed,
        };
        self.alike.insert(library.likeness, alike);
    }

    /// Whether the user is to be told of one more file that is not probed as it should be.
    pub(super) fn may_warn(&mut self) -> bool {
        self.warnings += 1;
        if self.warnings == MAX_WARNINGS + 1 {
            tracing::warn!(
                "that was said of {MAX_WARNINGS} files; of more, nothing is said any more \
                 (GPUPROBE_LOG=debug says all)"
            );
        }
        self.warnings <= MAX_WARNINGS
    }

    fn make_room(&mut self) {
        let remembered = self.looked_at.len() + self.failed.len() + self.left_alone.len();
        if remembered >= MAX_REMEMBERED {
            self.looked_at.clear();
            self.failed.clear();
            self.left_alone.clear();
            self.alike.retain(|_, alike| alike.is_probed);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::host::Role;
    use gpuprobe_cuda::Layer;

    fn libraries(folder: &tempfile::TempDir, count: usize) -> Vec<Library> {
        let library = |number| {
            let path = folder.path().join(format!("libcuda.so.{number}"));
            std::fs::write(&path, "").unwrap();
            let mut library = Library::open(&path, &path, Role::Cuda(Layer::Driver)).unwrap();
            assert_eq!(library.owner, std::fs::metadata(&path).unwrap().uid());
            library.owner = 1000;
            library
        };
        (0..count).map(library).collect()
    }

    #[test]
    fn a_user_has_no_more_than_his_share() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut files = Files::default();
        let mut all = libraries(&folder, MAX_OF_A_USER + 1);
        for library in &all[..MAX_OF_A_USER] {
            assert_eq!(files.refuse(library, false), None);
            files.enter(library);
            assert!(files.know(library) && files.know_by_looks(library) == library.in_overlay);
        }
        assert_eq!(files.probed(), MAX_OF_A_USER);
        let last = &mut all[MAX_OF_A_USER];
        let why = files.refuse(last, false).unwrap();
        assert!(files.is_first(why) && !files.is_first(why));
        for other in [0, 1001] {
            last.owner = other;
            assert_eq!(files.refuse(last, false), None, "not of {other}");
        }
        assert!(files.refuse(last, true).is_some(), "no descriptors");
    }

    #[test]
    fn what_is_left_alone_is_forgotten_in_time_and_what_is_probed_never() {
        let folder = tempfile::TempDir::new().unwrap();
        let all = libraries(&folder, 2);
        let mut files = Files::default();
        files.enter(&all[0]);
        files.leave_alone(&all[1]);
        assert!(files.know(&all[0]) && files.know(&all[1]));
        for number in 0..2 * MAX_REMEMBERED as u64 {
            files.done_with(MappingId::numbered(number));
        }
        assert!(files.know(&all[0]) && !files.know(&all[1]));
        assert!(files.looked_at.len() <= MAX_REMEMBERED);
    }

    #[test]
    fn warnings_come_to_an_end() {
        let mut files = Files::default();
        let said = (0..1000).filter(|_| files.may_warn()).count();
        assert_eq!(said, MAX_WARNINGS);
    }
}
