use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gpuprobe_os::proc::Mappings;

use super::*;

/// The module of a file that this process has mapped.
#[allow(unsafe_code)]
fn of(modules: &mut Modules, path: &Path) -> Option<Arc<Module>> {
    let file = fs::File::open(path).unwrap();
    // SAFETY: nobody writes to the file.
    let mapped = unsafe { memmap2::MmapOptions::new().map_exec(&file).unwrap() };
    let maps = Mappings::of(std::process::id()).unwrap();
    // By address: the thread that reads headers maps the file for a moment, too.
    let map = maps.at(mapped.as_ptr() as u64).unwrap();
    modules.of(std::process::id(), &map)
}

/// So many copies of this program's first pages.
fn files(folder: &Path, count: usize) -> Vec<std::path::PathBuf> {
    let bytes = fs::read("/proc/self/exe").unwrap();
    let make = |n: usize| {
        let path = folder.join(n.to_string());
        fs::write(&path, &bytes[..8192.min(bytes.len())]).unwrap();
        path
    };
    (0..count).map(make).collect()
}

#[test]
fn a_file_that_nobody_has_mapped_is_closed_and_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 2);
    let mut modules = Modules::new(FileReader::default());
    let [ended, living] = [0, 1].map(|n| of(&mut modules, &files[n]).unwrap());
    let (mapped, none) = (HashSet::from([living.id]), HashSet::new());
    assert!(modules.close_unused(&mapped).is_empty(), "it is too early");
    assert_eq!(modules.close_unused(&mapped), [ended.id]);
    assert!(modules.close_unused(&mapped).is_empty(), "it is closed");
    assert!(modules.get(ended.id).is_none());
    let again = of(&mut modules, &files[0]).unwrap();
    assert!(again.id != ended.id && again.file().is_some());
    assert!(again.headers() == ended.headers());
    assert!(modules.close_unused(&none).is_empty());
    let mut closed = modules.close_unused(&none);
    closed.sort_unstable_by_key(|id| id.0);
    assert_eq!(closed, [living.id, again.id]);
    // One that was changed meanwhile is another.
    // The kernel may give writes in the same tick the same time.
    let changed_at = || {
        let file = fs::metadata(&files[1]).unwrap();
        (file.ctime(), file.ctime_nsec())
    };
    let before = changed_at();
    while changed_at() == before {
        fs::write(&files[1], fs::read(&files[0]).unwrap()).unwrap();
    }
    let other = of(&mut modules, &files[1]).unwrap();
    assert!(other.file().is_some(), "it is not open");
    assert!(other.id != living.id, "it is the same");
}

#[test]
fn what_cannot_be_opened_is_one_module() {
    let folder = tempfile::tempdir().unwrap();
    let path = files(folder.path(), 1).remove(0);
    let mut modules = Modules::new(FileReader::default());
    let line = format!("0-1000 r-xp 0 0:0 7 {}", path.display());
    let map = Mapping::parse(line.as_bytes()).unwrap();
    let first = modules.of(std::process::id(), &map).unwrap();
    let second = modules.of(std::process::id(), &map).unwrap();
    assert!(first.file().is_none() && first.id == second.id);
    assert_eq!(modules.all.len(), 1);
}

#[test]
fn closed_modules_make_room_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 5);
    let mut modules = Modules {
        max_modules: 4,
        ..Modules::new(FileReader::default())
    };
    let all: Vec<_> = files.iter().map(|file| of(&mut modules, file)).collect();
    assert!(all[4].is_none());
    let first = all[0].as_ref().unwrap().id;
    let mapped = HashSet::from([first]);
    assert_eq!(modules.close_unused(&mapped).len(), 0);
    assert_eq!(modules.all.len(), 4);
    assert_eq!(modules.close_unused(&mapped).len(), 3);
    assert_eq!((modules.all.len(), modules.newest.len()), (1, 1));
    assert!(modules.get(first).is_some() && of(&mut modules, &files[4]).is_some());
}
