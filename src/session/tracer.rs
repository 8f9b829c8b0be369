//! The probe together with discovery: what is attached where, and attaching to more.

use std::collections::HashSet;

use anyhow::{Context, Result};

use super::{ApiChoice, Config, Target};
use crate::api::{FUNCTIONS, Layer};
use crate::discover::process::{self, Handle, MappingId};
use crate::discover::{FileId, Library, Role, system};
use crate::probe::{Point, Probe, Settings};

/// Loaded programs and what they are attached to.
pub struct Tracer {
    /// The kernel side.
    pub probe: Probe,
    api: ApiChoice,
    /// Probes fire in this process only.
    only_pid: Option<i32>,
    attached: HashSet<FileId>,
    looked_at: HashSet<MappingId>,
    /// CUDA libraries that are probed.
    pub libraries: usize,
    /// Functions that are probed in them.
    pub functions: usize,
}

impl Tracer {
    /// Loads the programs and attaches them to every library that is known now.
    ///
    /// # Errors
    /// BPF cannot be used, or nothing could be attached to.
    pub fn start(config: &Config, process: Option<Handle>) -> Result<Self> {
        let is_command = matches!(config.target, Target::Command(_));
        let probe = Probe::load(&Settings {
            only_targets: config.target != Target::Everything,
            follow_children: is_command,
            hold_targets: is_command,
            kind: config.attach,
        })?;
        let only_pid = process.map(|p| i32::try_from(p.pid)).transpose()?;
        let mut tracer = Self {
            probe,
            api: config.api,
            only_pid,
            attached: HashSet::new(),
            looked_at: HashSet::new(),
            libraries: 0,
            functions: 0,
        };
        if let Some(process) = process {
            tracer.probe.add_target(process.pid)?;
            tracer.look_at(process.pid).with_context(|| {
                format!("cannot attach to the libraries of process {}", process.pid)
            })?;
        } else {
            tracer.attach_known(config.target == Target::Everything);
        }
        tracer.probe.all_attached()?;
        Ok(tracer)
    }

    /// Attaches to the host's own libraries and, if asked to, to those of every process. What
    /// fails is a warning: other processes are traced all the same.
    fn attach_known(&mut self, processes_too: bool) {
        for library in system::libraries() {
            if let Err(error) = self.attach(&library) {
                tracing::warn!("{error:#}");
            }
        }
        let pids = if processes_too {
            process::all_pids()
        } else {
            Vec::new()
        };
        for pid in pids {
            if let Err(error) = self.look_at(pid) {
                // Most often it has ended meanwhile.
                tracing::debug!("process {pid}: {error:#}");
            }
        }
    }

    /// Attaches to what process `pid` has mapped and is not probed yet. Returns whether there was
    /// any CUDA library that is new to us.
    ///
    /// # Errors
    /// The process cannot be looked at, or the kernel refuses a probe.
    pub fn look_at(&mut self, pid: u32) -> Result<bool> {
        let mut new = false;
        let mut failure = None;
        for mapped in process::mapped(pid)? {
            if self.looked_at.contains(&mapped.id) {
                continue;
            }
            match mapped.open().and_then(|library| self.attach(&library)) {
                Ok(functions) => {
                    self.looked_at.insert(mapped.id);
                    new |= functions > 0;
                }
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(new), Err)
    }

    /// Attaches to `library` unless it is probed already. Returns the number of CUDA functions
    /// that are newly probed.
    fn attach(&mut self, library: &Library) -> Result<usize> {
        if !self.attached.insert(library.id) {
            return Ok(0);
        }
        let attached = match library.role {
            Role::Cuda(layer) => self.attach_cuda(library, layer),
            Role::Loader => self.attach_loader(library).map(|()| 0),
        };
        if attached.is_err() {
            self.attached.remove(&library.id);
        }
        attached
    }

    fn attach_cuda(&mut self, library: &Library, layer: Layer) -> Result<usize> {
        let mut functions = library.functions(layer)?;
        functions.retain(|f| self.api.includes(&FUNCTIONS[usize::from(f.row)]));
        let path = library.path.display();
        if functions.is_empty() {
            tracing::warn!("{path} exports none of the functions that are traced; left alone");
            return Ok(0);
        }
        let points: Vec<_> = functions
            .iter()
            .map(|f| Point {
                offset: f.offset,
                cookie: u64::from(f.row),
            })
            .collect();
        let attached = self
            .probe
            .attach_calls(&library.attach_path(), &points, self.only_pid)
            .with_context(|| format!("cannot attach to {} functions of {path}", points.len()))?;
        self.probe.keep(attached);
        self.libraries += 1;
        self.functions += functions.len();
        tracing::info!("{} functions of {path} are probed", functions.len());
        Ok(functions.len())
    }

    /// Without the loader's rendezvous, libraries that are loaded later are found late.
    fn attach_loader(&mut self, library: &Library) -> Result<()> {
        let path = library.path.display();
        let Some(found) = library.rendezvous()? else {
            tracing::warn!("{path} has no _dl_debug_state: dlopen in its programs is not noticed");
            return Ok(());
        };
        let point = Point {
            offset: found.offset,
            cookie: found.to_r_debug.cast_unsigned(),
        };
        let attached = self
            .probe
            .attach_rendezvous(&library.attach_path(), point, self.only_pid)
            .with_context(|| format!("cannot attach to _dl_debug_state of {path}"))?;
        self.probe.keep(attached);
        Ok(())
    }
}
