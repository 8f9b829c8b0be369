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
fn room_is_made_of_what_nobody_has_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 6);
    let mut modules = Modules {
        may_open: 4,
        ..Modules::default()
    };
    let mapped: Vec<_> = files[..2].iter().map(|f| of(&mut modules, f)).collect();
    let of_ended: Vec<_> = files[2..4].iter().map(|f| of(&mut modules, f)).collect();
    let ended = of_ended[0].as_ref().unwrap().id;
    drop(of_ended);
    let next = of(&mut modules, &files[4]).unwrap();
    assert!(next.file().is_some() && modules.open == 3);
    assert!(modules.get(ended).is_none());
    assert!(of(&mut modules, &files[2]).unwrap().id != ended);
    // It is too early to look again.
    assert!(of(&mut modules, &files[5]).unwrap().file().is_none());
    assert_eq!(modules.open, 4);
    for (module, path) in mapped.into_iter().zip(&files) {
        let again = of(&mut modules, path).unwrap();
        assert_eq!(again.id, module.unwrap().id);
    }
}

#[test]
fn a_file_that_nobody_has_mapped_is_closed_and_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 2);
    let mut modules = Modules::default();
    let [ended, living] = [0, 1].map(|n| of(&mut modules, &files[n]).unwrap());
    modules.map(&living);
    assert!(modules.close_unused().is_empty(), "both were asked for");
    assert!(modules.close_unused().is_empty(), "it is too early");
    assert_eq!(modules.close_unused(), [ended.id]);
    assert!(modules.close_unused().is_empty(), "it is closed");
    assert!(modules.get(ended.id).unwrap().file().is_none());
    assert_eq!(modules.open, 1);
    let again = of(&mut modules, &files[0]).unwrap();
    assert!(again.id == ended.id && again.file().is_some());
    assert!(again.headers() == ended.headers() && modules.open == 2);
    modules.unmap(&living);
    let mut closed = Vec::new();
    for _ in 0..3 {
        closed.extend(modules.close_unused());
    }
    closed.sort_unstable_by_key(|id| id.0);
    assert_eq!(closed, [ended.id, living.id]);
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
fn modules_take_no_more_than_they_may() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 9);
    let mut modules = Modules::default();
    let first = of(&mut modules, &files[0]).unwrap();
    modules.may_take = 3 * first.size();
    let all: Vec<_> = files.iter().map(|f| of(&mut modules, f)).collect();
    assert_eq!(all.iter().flatten().count(), 3);
    let known = modules.all.values().map(|module| module.size());
    assert_eq!(known.sum::<usize>(), modules.bytes);
}

#[test]
fn what_cannot_be_opened_is_one_module() {
    let folder = tempfile::tempdir().unwrap();
    let path = files(folder.path(), 1).remove(0);
    let mut modules = Modules::default();
    let line = format!("0-1000 r-xp 0 0:0 7 {}", path.display());
    let map = Mapping::parse(line.as_bytes()).unwrap();
    let first = modules.of(std::process::id(), &map).unwrap();
    let second = modules.of(std::process::id(), &map).unwrap();
    assert!(first.file().is_none() && first.id == second.id);
    assert_eq!(modules.all.len(), 1);
}

#[test]
fn room_is_made_in_bytes_and_not_again_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 5);
    let mut modules = Modules::default();
    let first = of(&mut modules, &files[0]).unwrap();
    modules.may_take = 2 * first.size();
    assert!(of(&mut modules, &files[1]).is_some());
    assert!(modules.forgotten_at.is_none() && modules.open == 2);
    // The one that is held stays.
    assert!(of(&mut modules, &files[2]).is_some());
    assert_eq!((modules.all.len(), modules.by_key.len()), (2, 2));
    assert_eq!((modules.open, modules.bytes), (2, 2 * first.size()));
    assert!(modules.forgotten_at.is_some() && modules.is_reported);
    assert!(of(&mut modules, &files[3]).is_none(), "it is too early");
    modules.forgotten_at = Instant::now().checked_sub(PAUSE);
    assert!(of(&mut modules, &files[3]).is_some());
    assert!(modules.get(first.id).is_some());
}

#[test]
fn how_many_files_may_be_open_follows_the_limit_of_the_process() {
    let may = may_open();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(soft >= hard.min(3 * 16384));
    assert_eq!(may, (soft / 3).min(16384));
}
