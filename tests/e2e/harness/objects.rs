//! BPF objects of a process, and whether the kernel frees them when it exits.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{ProgramType, libbpf_sys};
use nix::sys::signal::Signal;

use super::child::state_of;
use super::{Gpuprobe, wait_for, wait_within};
use gpuprobe_cuda::{FUNCTIONS, MAX_ROWS};

/// Ids of links, programs and maps. The kernel assigns increasing ids: none is reused soon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) links: BTreeSet<u32>,
    pub(crate) programs: BTreeSet<u32>,
    pub(crate) maps: BTreeSet<u32>,
}

/// The ids of all objects of a kind, without a descriptor of any. Whoever closes one of an array of programs
/// while the kernel still clears it, as its last descriptor is gone, makes it clear the array twice and
/// keep it for good (`prog_array_map_clear` in `kernel/bpf/arraymap.c`).
#[allow(unsafe_code)]
fn ids(next: unsafe extern "C" fn(u32, *mut u32) -> i32) -> BTreeSet<u32> {
    let mut ids = BTreeSet::new();
    let mut id = 0;
    // SAFETY: it writes to the number that it is given, and nowhere else.
    while unsafe { next(id, &raw mut id) } == 0 {
        ids.insert(id);
    }
    ids
}

/// What the kernel says of the files that process `pid` has open.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let entries = entries.into_iter().flatten().flatten();
    // A descriptor may have been closed meanwhile.
    let texts = entries.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default());
    texts.collect()
}

/// The CUDA functions and frameworks' allocators on which a gpuprobe has probes of its session: the kernel says the
/// cookie of each, which begins with its row.
pub(crate) fn probed(pid: u32) -> BTreeSet<&'static str> {
    let is_cuda = |text: &String| text.contains("/libcuda") || text.contains("/libc10");
    let rows = |text: String| {
        let rows = text.split_once("ref_ctr_offset").map(|(_, rows)| rows);
        let cookies = rows.unwrap_or_default().lines();
        let cookies: Vec<usize> = cookies
            .filter_map(|line| line.split_whitespace().next()?.parse().ok())
            .collect();
        cookies
    };
    let links = descriptors(pid).into_iter().filter(is_cuda).flat_map(rows);
    links
        .map(|cookie| FUNCTIONS[cookie % MAX_ROWS].symbol)
        .collect()
}

/// How often the programs on functions of CUDA of a gpuprobe have run, while the kernel counts.
pub(crate) fn runs(pid: u32) -> u64 {
    let ids = Objects::of(pid).programs;
    let all = ProgInfoIter::default();
    let ours = all.filter(|it| it.ty == ProgramType::Kprobe && ids.contains(&it.id));
    // That on the dynamic loader runs in every process.
    let ours = ours.filter(|it| !it.name.to_string_lossy().starts_with("rendezvous"));
    ours.map(|program| program.run_cnt).sum()
}

/// Has the kernel count the runs of programs as long as this is kept.
#[allow(unsafe_code)]
pub(crate) fn counted_runs() -> OwnedFd {
    // SAFETY: it returns a descriptor that nobody else has, or a negative number.
    unsafe {
        let counting = libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME);
        assert!(counting >= 0, "the kernel counts no runs");
        OwnedFd::from_raw_fd(counting)
    }
}

impl Objects {
    /// The objects that a gpuprobe has file descriptors of.
    pub(crate) fn of(pid: u32) -> Self {
        let mut objects = Self::default();
        for text in descriptors(pid) {
            let number = |name: &str| -> Option<u32> {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.map(|value| value.trim().parse().unwrap())
            };
            // The fdinfo of a link has its program, too.
            if let Some(link) = number("link_id:") {
                objects.links.insert(link);
            } else if let Some(program) = number("prog_id:") {
                objects.programs.insert(program);
            } else if let Some(map) = number("map_id:") {
                objects.maps.insert(map);
            }
        }
        objects
    }

    /// Stops gpuprobe, so that its set of objects is final, and returns them.
    pub(crate) fn of_stopped(gpuprobe: &Gpuprobe) -> Self {
        let pid = gpuprobe.child.pid();
        gpuprobe.child.signal(Signal::SIGSTOP);
        let has_stopped = || matches!(state_of(pid), Some('T' | 'Z') | None).then_some(());
        wait_for("gpuprobe to stop", has_stopped);
        Self::of(pid)
    }

    /// The objects that still exist.
    pub(crate) fn left(&self) -> Self {
        Self {
            links: &self.links & &ids(libbpf_sys::bpf_link_get_next_id),
            programs: &self.programs & &ids(libbpf_sys::bpf_prog_get_next_id),
            maps: &self.maps & &ids(libbpf_sys::bpf_map_get_next_id),
        }
    }

    /// Machine code of the programs on functions, by their names.
    pub(crate) fn machine_code(&self) -> Vec<(String, Vec<u8>)> {
        let options = ProgInfoQueryOptions::default().include_jited_prog_insns(true);
        let all = ProgInfoIter::with_query_opts(options);
        let ours = all.filter(|program| self.programs.contains(&program.id));
        let on_functions = ours.filter(|program| program.ty == ProgramType::Kprobe);
        let named = on_functions.map(|program| {
            let name = program.name.to_string_lossy().into_owned();
            (name, program.jited_prog_insns)
        });
        named.collect()
    }

    /// Waits until none of the objects exists.
    pub(crate) fn wait_until_gone(&self, limit: Duration) {
        wait_within(limit, "BPF objects to go", || {
            (self.left() == Self::default()).then_some(())
        });
    }
}
