//! Empty BPF programs on the probed functions: the minimum cost that gpuprobe is compared with.

use std::mem::MaybeUninit;
use std::path::Path;

use anyhow::Result;
use gpuprobe::host::{LibraryRole, MappedLibrary};
use gpuprobe_cuda::{FUNCTIONS, Layer};
use gpuprobe_stacks::helper::FileReader;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject, UprobeMultiOpts};

#[allow(
    unsafe_code,
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::restriction
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/floor.skel.rs"));
}

/// Pair of empty programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloorKind {
    Session,
    Multi,
    /// Entry probes of launches.
    Launches,
    /// Entry and return of copies, as a session.
    Copies,
    /// Entry probes of the hooks of frameworks' allocators.
    Hooks,
}

/// Attached empty programs; dropping it detaches them.
pub(crate) struct Floor {
    _links: Vec<Link>,
    _skeleton: skeleton::FloorSkel<'static>,
}

impl Floor {
    /// Attaches to all traced functions of `libraries` in process `pid`.
    pub(crate) fn attach(kind: FloorKind, libraries: &[(&Path, Layer)], pid: u32) -> Result<Self> {
        let object: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = skeleton::FloorSkelBuilder::default().open(object)?;
        let session = matches!(kind, FloorKind::Session | FloorKind::Copies);
        open.progs.floor_session.set_autoload(session);
        open.progs.floor_entry.set_autoload(!session);
        open.progs.floor_return.set_autoload(!session);
        let skeleton = open.load()?;
        let programs = if session {
            vec![(&skeleton.progs.floor_session, false)]
        } else {
            let progs = &skeleton.progs;
            match kind {
                FloorKind::Launches | FloorKind::Hooks => vec![(&progs.floor_entry, false)],
                _ => vec![(&progs.floor_return, true), (&progs.floor_entry, false)],
            }
        };
        let mut links = Vec::new();
        for (path, layer) in libraries {
            let library = MappedLibrary::open(path, path, LibraryRole::Cuda(*layer))?;
            let mut functions = library.functions(&FileReader::default(), *layer)?;
            functions.retain(|f| {
                let op = FUNCTIONS[usize::from(f.row)].op;
                match kind {
                    FloorKind::Launches => op.is_launch() && *layer == Layer::Driver,
                    FloorKind::Copies => op.is_copy() && *layer == Layer::Driver,
                    FloorKind::Session | FloorKind::Multi => op.is_memory(),
                    FloorKind::Hooks => op.is_of_framework(),
                }
            });
            if functions.is_empty() {
                continue;
            }
            for (program, retprobe) in &programs {
                let opts = UprobeMultiOpts {
                    offsets: functions.iter().map(|f| f.offset as usize).collect(),
                    retprobe: *retprobe,
                    session,
                    ..Default::default()
                };
                let pid = i32::try_from(pid)?;
                links.push(program.attach_uprobe_multi_with_opts(pid, path, "", opts)?);
            }
        }
        Ok(Self {
            _links: links,
            _skeleton: skeleton,
        })
    }
}
