//! Detection of uprobe breakpoints in a process's memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use procfs::process::{MMPermissions, MMapPath, Process};

use super::child::{host_wide_tracer, raw};

/// Whether the code of the CUDA libraries in a process differs from their files, which means that
/// it has breakpoints.
pub(crate) fn has_breakpoints(pid: u32) -> bool {
    let differ = code_differs(pid, "libcuda");
    assert_eq!(differ.len(), 2, "libcuda and libcudart are to be compared");
    differ.contains(&true)
}

/// Places in a process at which its CUDA libraries differ from their files.
pub(crate) fn breakpoints(pid: u32) -> usize {
    let differ = differences(pid, "libcuda").concat();
    differ.chunk_by(|a, b| a + 1 == *b).count()
}

/// Whether no breakpoints of ours are left in a process. Those of a host-wide tracer beside the tests are in every
/// process and cannot be told from ours: beside one, this is true.
pub(crate) fn is_unprobed(pid: u32) -> bool {
    host_wide_tracer().is_some() || !has_breakpoints(pid)
}

/// For each mapping of code of a file whose name begins with `prefix`: whether it differs from the file.
pub(crate) fn code_differs(pid: u32, prefix: &str) -> Vec<bool> {
    let differ = differences(pid, prefix);
    differ.iter().map(|places| !places.is_empty()).collect()
}

/// For each of these mappings: the addresses at which it differs.
fn differences(pid: u32, prefix: &str) -> Vec<Vec<u64>> {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = Process::new(raw(pid).as_raw()).unwrap().maps().unwrap();
    let mut differ = Vec::new();
    for map in &maps {
        let MMapPath::Path(path) = &map.pathname else {
            continue;
        };
        let name = path.file_name().unwrap().to_string_lossy();
        if !name.starts_with(prefix) || !map.perms.contains(MMPermissions::EXECUTE) {
            continue;
        }
        let (start, end) = map.address;
        // The last page may reach beyond the end of the file.
        let mut on_disk = vec![0; usize::try_from(end - start).unwrap()];
        let length = File::open(path)
            .unwrap()
            .read_at(&mut on_disk, map.offset)
            .unwrap();
        let mut in_memory = vec![0; length];
        memory.read_exact_at(&mut in_memory, start).unwrap();
        let bytes = (start..).zip(in_memory.iter().zip(&on_disk));
        let places = bytes.filter(|(_, (memory, disk))| memory != disk);
        differ.push(places.map(|(address, _)| address).collect());
    }
    differ
}
