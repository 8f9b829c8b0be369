//! Attaching programs to functions of a file, told by their file offsets.

use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts};

use super::kind::AttachKind;

/// A function to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Offset in the file.
    pub offset: u64,
    /// What the program sees as its attach cookie.
    pub cookie: u64,
}

/// Probes in place; dropping it removes them.
#[must_use = "dropping it removes the probes"]
pub struct Attached {
    pub(super) links: Vec<Link>,
}

/// Attaches `program` to all `points` of the file at `path`.
pub(super) fn attach(
    program: &ProgramMut<'_>,
    kind: AttachKind,
    path: &str,
    points: &[Point],
    pid: Option<i32>,
    is_return: bool,
) -> Result<Vec<Link>> {
    let pid = pid.unwrap_or(-1);
    if kind != AttachKind::Perf {
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
    let mut links = Vec::with_capacity(points.len());
    for point in points {
        let opts = UprobeOpts {
            cookie: point.cookie,
            retprobe: is_return,
            ..Default::default()
        };
        links.push(program.attach_uprobe_with_opts(pid, path, point.offset as usize, opts)?);
    }
    Ok(links)
}

/// The offset in our own executable of the code at `address` in this process.
pub(super) fn own_file_offset(address: u64) -> Result<u64> {
    let maps = procfs::process::Process::myself()
        .and_then(|p| p.maps())
        .context("cannot read /proc/self/maps")?;
    for map in &maps {
        let (start, end) = map.address;
        if (start..end).contains(&address) {
            return Ok(address - start + map.offset);
        }
    }
    bail!("no mapping holds the self-test's function");
}
