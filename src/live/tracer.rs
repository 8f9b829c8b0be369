//! The loaded BPF programs and the libraries that they are attached to.

mod attach;
mod scan;

use attach::Attaching;
pub(super) use attach::Settled;
pub(super) use scan::{ProcessScan, ScanProgress, ScanPurpose};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::empty_run::LoadedLayers;
use super::files::ProbedFiles;
use super::queries::DeviceQueries;
use super::scanned::ScanResult;
use super::{ApiChoice, Target, TensorMode, TraceConfig};
use crate::host::process;
use crate::host::process::ProcessHandle;
use crate::host::{LibraryId, LibraryRole, MappedLibrary, gpus, system};
use crate::probe::{AttachId, LoadSettings, Probe, Purpose, arm64};
use gpuprobe_cuda::Modes;
use gpuprobe_os::privileges;
use gpuprobe_stacks::reader::FileReader;

/// The processes whose calls are seen once the libraries that exist at the start are probed.
fn users(config: &TraceConfig, processes: &[ProcessHandle]) -> Vec<u32> {
    let uses_cuda = |pid: &u32| {
        let mapped = process::mapped(*pid).unwrap_or_default();
        mapped
            .iter()
            .any(|file| matches!(file.role, LibraryRole::Cuda(_)))
    };
    let chosen = processes.iter().map(|process| process.pid);
    match config.target {
        Target::Everything => process::all_pids().into_iter().filter(uses_cuda).collect(),
        _ if config.children => chosen
            .flat_map(|pid| [pid].into_iter().chain(process::descendants(pid)))
            .collect(),
        _ => chosen.collect(),
    }
}

/// Settings of the BPF programs for a session.
fn load_settings(config: &TraceConfig) -> LoadSettings {
    let is_command = matches!(config.target, Target::Command(_));
    LoadSettings {
        only_targets: config.target != Target::Everything,
        follow_children: is_command || config.children,
        hold_targets: is_command,
        launches: config.modes.cudatrace,
        single_launches: config.records_launches(),
        launch_stacks: config.records_launches() && config.modes.activity,
        durations: config.record.is_some(),
        batches: config.modes.activity,
        ledger: config.modes.memleak,
        stacks: config.stacks,
        python: config.python,
        tensors: config.tensors != TensorMode::Off,
        requests: config.tensors == TensorMode::Requested,
        kind: config.attach,
        map_entries: config.map_entries.clone(),
    }
}

/// The loaded BPF programs, with the probed libraries.
pub struct Tracer {
    // Before `probe`, so that the links are dropped first.
    queries: DeviceQueries,
    /// The loaded BPF programs and their maps.
    pub probe: Probe,
    reader: FileReader,
    api: ApiChoice,
    modes: Modes,
    /// Launches are recorded one by one.
    single_launches: bool,
    /// Tracing of framework allocators.
    tensors: TensorMode,
    /// Probes fire in these processes only; in all if there are none.
    only_pids: Vec<i32>,
    /// Functions that begin with a nop of five bytes are probed on every kernel.
    allow_nop5: bool,
    files: ProbedFiles,
    /// The libraries to which requests to attach are on their way.
    attaching: HashMap<AttachId, Attaching>,
    /// The host has one GPU.
    one_gpu: bool,
    /// CUDA layers that the traced processes have loaded.
    pub loaded: LoadedLayers,
    /// Number of probed CUDA libraries.
    pub libraries: usize,
    /// Number of probed functions in them.
    pub functions: usize,
    /// Processes with CUDA loaded.
    cuda_users: HashMap<u32, ProcessHandle>,
}

impl Tracer {
    /// Loads the BPF programs and attaches them to every library found now that `reader` can read.
    /// `prepare` is called with each process that has CUDA loaded, before a call of it can be
    /// traced.
    ///
    /// # Errors
    /// Returns an error if BPF cannot be used, or there is nothing to attach to.
    pub fn start(
        config: &TraceConfig,
        processes: &[ProcessHandle],
        reader: FileReader,
        mut prepare: impl FnMut(&Probe, u32),
    ) -> Result<Self> {
        arm64::permit(std::env::consts::ARCH, config.allow_arm64)?;
        let is_command = matches!(config.target, Target::Command(_));
        let probe = Probe::load(&load_settings(config))?;
        let pids = processes.iter().map(|process| i32::try_from(process.pid));
        let only_pids = match config.children {
            true => Vec::new(),
            false => pids.collect::<Result<_, _>>()?,
        };
        let one_gpu = gpus::on_host() == Some(1);
        // With a single GPU the device needs no query, and a command is traced from its start.
        let queries = if is_command || one_gpu {
            DeviceQueries::none()
        } else {
            DeviceQueries::new(probe.kind.is_one_by_one())
        };
        let mut tracer = Self {
            probe,
            reader,
            api: config.api,
            modes: config.modes,
            single_launches: config.records_launches(),
            tensors: config.tensors,
            only_pids,
            allow_nop5: config.allow_nop5,
            files: ProbedFiles::default(),
            attaching: HashMap::new(),
            one_gpu,
            queries,
            loaded: LoadedLayers::default(),
            libraries: 0,
            functions: 0,
            cuda_users: HashMap::new(),
        };
        for pid in users(config, processes) {
            prepare(&tracer.probe, pid);
        }
        for process in processes {
            tracer.attach_process(process.pid, config.children)?;
        }
        if processes.is_empty() {
            tracer.attach_known(config.target == Target::Everything);
        }
        tracer.probe.all_attached()?;
        Ok(tracer)
    }

    /// Makes a process a target, and attaches to what it has mapped.
    fn attach_process(&mut self, pid: u32, children: bool) -> Result<()> {
        self.probe.add_target(pid)?;
        let attached = self.libraries;
        let mut scanned = self
            .scan(pid)
            .with_context(|| format!("cannot scan the libraries of process {pid}"))
            .map_err(privileges::name_missing)?;
        scanned.warn();
        // A library probed for another of the processes is probed for this one too.
        if scanned.functions == 0 && scanned.incomplete && attached == 0 {
            bail!("process {pid} is not traced: none of its libraries can be probed");
        }
        if children {
            self.attach_descendants(pid)?;
        }
        Ok(())
    }

    /// Traces the live descendants of `pid` too. Processes forked meanwhile are children of a traced one,
    /// or found in the next round.
    fn attach_descendants(&mut self, pid: u32) -> Result<()> {
        let mut known = HashSet::from([pid]);
        // The host's own libraries, for children that run another program.
        self.attach_known(false);
        loop {
            let new: Vec<_> = process::descendants(pid)
                .into_iter()
                .filter(|pid| known.insert(*pid))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            for pid in new {
                self.probe.add_target(pid)?;
                // The exit of an ended process produces no event.
                if !process::is_alive(pid) {
                    self.probe.remove_target(pid);
                    continue;
                }
                match self.scan(pid) {
                    Ok(mut scanned) => scanned.warn(),
                    Err(error) => tracing::debug!("process {pid}: {error:#}"),
                }
            }
        }
    }

    /// Detaches the probes of device queries, or attaches them again. Returns the time until the next call;
    /// `None` at the end.
    pub fn step_queries(&mut self) -> Option<Duration> {
        let (probe, pids) = (&self.probe, &self.only_pids);
        self.queries.step(|file, points| {
            let mut plan = probe.plan();
            let attached = plan.add(Purpose::Calls, points.to_vec(), pids);
            Ok((plan.send(file)?, attached))
        })
    }

    /// Attaches to the host's own libraries and, with `processes_too`, to those of every process.
    /// Failures are warnings: other processes are traced regardless.
    fn attach_known(&mut self, processes_too: bool) {
        for library in system::libraries() {
            if let Err(error) = self.attach_now(library) {
                self.warn(&error);
            }
        }
        let pids = if processes_too {
            process::all_pids()
        } else {
            Vec::new()
        };
        for pid in pids {
            match self.scan(pid) {
                Ok(mut scanned) => scanned.warn(),
                // Usually the process has ended.
                Err(error) => tracing::debug!("process {pid}: {error:#}"),
            }
        }
    }

    /// Scans process `pid` and probes the libraries that it has mapped, which may take the kernel long.
    ///
    /// # Errors
    /// Returns an error if the process has ended or cannot be inspected (another user's).
    fn scan(&mut self, pid: u32) -> Result<ScanResult> {
        // Everything that runs at the start is late.
        let mut scan = self.begin_scan(pid, ScanPurpose::Attach { late: false })?;
        loop {
            match self.continue_scan(&mut scan, None)? {
                ScanProgress::Waiting(id) => {
                    let mut settled = self.settled(id)?;
                    self.resume(&mut scan, &mut settled);
                }
                ScanProgress::OutOfTime => {}
                ScanProgress::Done => return Ok(scan.scanned),
            }
        }
    }

    /// Attaches to `library` and waits until that is done.
    fn attach_now(&mut self, library: MappedLibrary) -> Result<()> {
        if let Some(id) = self.attach(library)? {
            self.settled(id)?.result?;
        }
        Ok(())
    }

    /// Waits for the answer to a request of the tracer.
    fn settled(&mut self, id: AttachId) -> Result<Settled> {
        let outcome = self.probe.answer_to(id)?;
        let settled = self.settle(outcome);
        settled.map_err(|_| anyhow!("nothing is attached"))
    }

    /// Records that process `pid` has CUDA loaded.
    fn note_user(&mut self, pid: u32) {
        if !self.cuda_users.contains_key(&pid)
            && let Ok(handle) = ProcessHandle::of(pid)
        {
            self.cuda_users.insert(pid, handle);
        }
    }

    /// The live processes with CUDA loaded.
    pub fn cuda_users(&mut self) -> impl Iterator<Item = u32> + use<'_> {
        self.cuda_users.retain(|_, handle| handle.is_alive());
        self.cuda_users.keys().copied()
    }

    /// The probed files without a known process that has them mapped: id, path and owner.
    pub fn without_user(&mut self) -> Vec<(LibraryId, PathBuf, u32)> {
        self.files.without_user()
    }

    /// Detaches from a file that no process has mapped, and drops its state.
    pub fn release(&mut self, library: LibraryId) {
        if let Some(group) = self.files.forget(library) {
            self.probe.release(group);
            self.queries.release(group);
        }
    }
}
