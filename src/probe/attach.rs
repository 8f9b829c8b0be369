//! Attaching BPF programs to functions of a file, given by file offset.

use std::thread;

use anyhow::{Context, Result, anyhow};
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts};
use serde::{Deserialize, Serialize};

use super::kind::AttachKind;
use gpuprobe_os::proc::Mappings;
use gpuprobe_stacks::functions::FunctionInFile;

/// A function to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbePoint {
    /// File offset of its first instruction.
    pub offset: u64,
    /// Attach cookie passed to the program.
    pub cookie: u64,
}

impl From<&FunctionInFile> for ProbePoint {
    fn from(function: &FunctionInFile) -> Self {
        Self {
            offset: function.offset,
            cookie: u64::from(function.row),
        }
    }
}

/// Number of a file's probes, under which they are released together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileProbes(pub u32);

/// Attaches `program` to all `points` of the file at `path`, in process `pid` or, for -1, in all.
pub(super) fn attach(
    program: &ProgramMut<'_>,
    kind: AttachKind,
    path: &str,
    points: &[ProbePoint],
    pid: i32,
    is_return: bool,
) -> Result<Vec<Link>> {
    if !kind.is_one_by_one() {
        let opts = UprobeMultiOpts {
            offsets: points.iter().map(|p| p.offset as usize).collect(),
            cookies: points.iter().map(|p| p.cookie).collect(),
            retprobe: is_return,
            session: kind == AttachKind::Session,
            ..Default::default()
        };
        let link = program.attach_uprobe_multi_with_opts(pid, path, "", opts)?;
        return Ok(vec![link]);
    }
    attach_each(program, path, points, pid, is_return)
}

/// Number of threads that attach or detach in parallel.
pub(super) const AT_A_TIME: usize = 32;

/// A program attached by several threads.
struct SharedProgram<'a>(&'a ProgramMut<'a>);

// SAFETY: attaching only reads the loaded program, whose descriptor and type no longer change, and
// writes to nothing shared with another attachment.
#[allow(unsafe_code)]
unsafe impl Sync for SharedProgram<'_> {}

impl SharedProgram<'_> {
    fn attach(&self, pid: i32, path: &str, point: ProbePoint, is_return: bool) -> Result<Link> {
        let opts = UprobeOpts {
            cookie: point.cookie,
            retprobe: is_return,
            ..Default::default()
        };
        let offset = point.offset as usize;
        Ok(self.0.attach_uprobe_with_opts(pid, path, offset, opts)?)
    }
}

/// Attaches one by one on several threads: the kernel waits for a grace period each time, and
/// parallel waits share it.
fn attach_each(
    program: &ProgramMut<'_>,
    path: &str,
    points: &[ProbePoint],
    pid: i32,
    is_return: bool,
) -> Result<Vec<Link>> {
    let program = SharedProgram(program);
    let share = points.len().div_ceil(AT_A_TIME).max(1);
    thread::scope(|scope| {
        let program = &program;
        let attach = |some: &[ProbePoint]| -> Result<Vec<Link>> {
            let one = |&point| program.attach(pid, path, point, is_return);
            some.iter().map(one).collect()
        };
        let threads: Vec<_> = points
            .chunks(share)
            .map(|some| scope.spawn(move || attach(some)))
            .collect();
        let mut links = Vec::with_capacity(points.len());
        for thread in threads {
            let attached = thread.join();
            links.extend(attached.map_err(|_| anyhow!("a thread that attaches panicked"))??);
        }
        Ok(links)
    })
}

/// File offset in this executable of the code at `address`.
pub(super) fn own_file_offset(address: u64) -> Result<u64> {
    let maps = Mappings::of(std::process::id()).context("cannot read /proc/self/maps")?;
    let map = maps.at(address);
    let map = map.context("the self-test's function is in no mapping")?;
    Ok(address - map.start + map.offset)
}
