//! The loaded BPF programs and the libraries that they are attached to.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail};

use super::empty_run::LoadedLayers;
use super::files::ProbedFiles;
use super::queries::DeviceQueries;
use super::scanned::Looked;
use super::scanned::beginning;
use super::{ApiChoice, Target, TensorMode, TraceConfig, limits};
use crate::host::process;
use crate::host::process::{Glance, Mapped, ProcessHandle};
use crate::host::{LibraryId, LibraryRole, MappedLibrary, gpus, system};
use crate::probe::{Attached, LoadSettings, Probe, ProbePoint, arm64};
use gpuprobe_cuda::{FUNCTIONS, Function, Layer, Modes, Op};
use gpuprobe_os::{mounts, privileges};
use gpuprobe_stacks::functions::FunctionInFile as FoundFunction;
use gpuprobe_stacks::instruction::FirstInstruction;
use gpuprobe_stacks::reader::{FileReader, NotNow};

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

/// A process scan, which may take several steps.
#[derive(Debug)]
pub struct ProcessScan {
    /// Process id of the scanned process.
    pub pid: u32,
    /// Result of the steps so far.
    pub scanned: Looked,
    mapped: process::MappedFiles,
    /// Number of probed files when the scan began, or began again.
    probed: usize,
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
        self.queries
            .step(|path, points| probe.attach_calls(path, points, pids))
    }

    /// Attaches to the host's own libraries and, with `processes_too`, to those of every process.
    /// Failures are warnings: other processes are traced regardless.
    fn attach_known(&mut self, processes_too: bool) {
        for library in system::libraries() {
            if let Err(error) = self.attach(&library) {
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

    /// Scans process `pid` and probes the libraries that it has mapped.
    ///
    /// # Errors
    /// Returns an error if the process has ended or cannot be inspected (another user's).
    pub fn scan(&mut self, pid: u32) -> Result<Looked> {
        let mut scan = self.begin_scan(pid)?;
        while !self.continue_scan(&mut scan, None)? {}
        Ok(scan.scanned)
    }

    /// Begins to scan process `pid`.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`Self::scan`].
    pub fn begin_scan(&self, pid: u32) -> Result<ProcessScan> {
        Ok(ProcessScan {
            pid,
            scanned: Looked::default(),
            mapped: process::MappedFiles::at(pid)?,
            probed: self.files.probed(),
        })
    }

    /// Continues a scan until `until`, or the end of an attach in progress then. Returns true when
    /// the scan is done.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub fn continue_scan(
        &mut self,
        scan: &mut ProcessScan,
        until: Option<Instant>,
    ) -> Result<bool> {
        loop {
            match scan.mapped.on(until)? {
                Glance::Found(mapped) => {
                    if matches!(mapped.role, LibraryRole::Cuda(_)) {
                        self.note_user(scan.pid);
                    }
                    self.attach_found(scan.pid, &mapped, &mut scan.scanned);
                }
                Glance::OutOfTime => return Ok(false),
                Glance::End if self.files.probed() == scan.probed => return Ok(true),
                // Files mapped while the loader was being attached are found now.
                Glance::End => {
                    scan.probed = self.files.probed();
                    scan.mapped = process::MappedFiles::at(scan.pid)?;
                }
            }
            if until.is_some_and(|until| Instant::now() > until) {
                return Ok(false);
            }
        }
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

    /// Attaches to a file that process `pid` has mapped, unless that was done.
    fn attach_found(&mut self, pid: u32, mapped: &Mapped, scanned: &mut Looked) {
        if let LibraryRole::Cuda(layer) = mapped.role {
            self.loaded.add(layer);
        }
        if !self.files.are_done_with(mapped) {
            self.attach_mapped(mapped, scanned);
        }
        let used = self.files.note_user(mapped, pid);
        scanned.uses.extend(used);
    }

    fn attach_mapped(&mut self, mapped: &Mapped, scanned: &mut Looked) {
        let attached = mapped.open().and_then(|library| {
            let functions = self.attach(&library)?;
            self.files.done_with(mapped, &library);
            Ok(functions)
        });
        match attached {
            Ok(functions) => scanned.functions += functions,
            // The file system may be served by another user later: tried again.
            Err(error) if is_foreign(&error) => mounts::say_foreign(&mapped.path),
            Err(error) => {
                scanned.incomplete = true;
                if self.files.failed(mapped) && self.files.may_warn() {
                    scanned.failures.push(error);
                } else {
                    tracing::debug!("{error:#}");
                }
            }
        }
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

    /// Attaches to `library` unless it is probed already. Returns the number of CUDA functions
    /// that are newly probed.
    fn attach(&mut self, library: &MappedLibrary) -> Result<usize> {
        if self.files.know(library) {
            return Ok(0);
        }
        if self.files.is_probed_elsewhere(library) {
            let path = library.path.display();
            tracing::debug!("{path} is probed already, through another overlay");
            return Ok(0);
        }
        let is_crowded = limits::is_crowded(library.descriptor());
        if let Some(why) = self.files.refuse(library, is_crowded) {
            let path = library.path.display();
            self.files.skip(library);
            if self.files.is_first(why) {
                tracing::warn!("{path} and similar files are not probed: {why}");
            } else {
                tracing::debug!("{path} is not probed: {why}");
            }
            return Ok(0);
        }
        match library.role {
            LibraryRole::Cuda(layer) => self.attach_cuda(library, layer),
            LibraryRole::Framework if self.tensors != TensorMode::Off => {
                self.attach_framework(library)
            }
            LibraryRole::Requests if self.tensors == TensorMode::Requested => {
                self.attach_requests(library)
            }
            LibraryRole::Framework | LibraryRole::Requests => Ok(0),
            LibraryRole::Loader => self.attach_loader(library),
        }
    }

    /// Removes the functions on which a probe is not possible or not safe. Warns of these, and of those
    /// on which it is slow.
    fn leave_out_unsafe(&mut self, functions: &mut Vec<FoundFunction>, path: &str) {
        if let Some(refused) = beginning(functions, FirstInstruction::Refused) {
            self.warn(&anyhow!(
                "{refused} of {path} not probed: the kernel allows no probe on their first \
                 instruction"
            ));
            functions.retain(|f| f.first != FirstInstruction::Refused);
        }
        if !self.allow_nop5
            && let Some(replaced) = beginning(functions, FirstInstruction::Replaced)
        {
            self.warn(&anyhow!(
                "{replaced} of {path} not probed: they begin with a 5-byte nop, and probes on these \
                 can corrupt the program on Linux 6.18 to 7.2; --allow-nop5 probes them all the same"
            ));
            functions.retain(|f| f.first != FirstInstruction::Replaced);
        }
        if let Some(stepped) = beginning(functions, FirstInstruction::Stepped) {
            self.warn(&anyhow!(
                "slow probes on {stepped} of {path}: the kernel cannot emulate their first \
                 instruction, and single-stepping costs ten times as much or more"
            ));
        }
    }

    fn attach_cuda(&mut self, library: &MappedLibrary, layer: Layer) -> Result<usize> {
        let mut functions = match library.functions(&self.reader, layer) {
            Ok(functions) => functions,
            Err(error) => return self.skip(library, &error),
        };
        if functions.is_empty() {
            let error = anyhow!("it exports none of the traced functions");
            return self.skip(library, &error);
        }
        functions.retain(|f| self.wants(&FUNCTIONS[usize::from(f.row)]));
        let path = library.path.display().to_string();
        self.leave_out_unsafe(&mut functions, &path);
        let op = |f: &FoundFunction| FUNCTIONS[usize::from(f.row)].op;
        let told = |op: Op| self.modes.memleak && op.is_ledger_event();
        let only_counted = |op: Op| op.is_launch() && !self.single_launches && !told(op);
        let (entries, calls): (Vec<_>, Vec<_>) = functions
            .iter()
            .partition(|f| only_counted(op(f)) || op(f).is_capture_call());
        let (queries, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|f| op(f).is_device_query());
        let (file, pids) = (library.attach_path(), &self.only_pids);
        let group = self.files.next_group();
        let calls: Vec<_> = calls.iter().map(ProbePoint::from).collect();
        if !calls.is_empty() {
            let attached = self.probe.attach_calls(&file, &calls, pids);
            let count = calls.len();
            let why = || format!("cannot attach to {count} functions of {path}");
            self.probe.keep(Some(group), attached.with_context(why)?);
        }
        let queries: Vec<_> = queries.iter().map(ProbePoint::from).collect();
        if !queries.is_empty() {
            let probe = &self.probe;
            let attach = |file: &str, points: &[ProbePoint]| probe.attach_calls(file, points, pids);
            let why = || format!("cannot attach to the device queries of {path}");
            let added = self
                .queries
                .add(group, library.try_clone_file()?, queries, attach);
            added.with_context(why)?;
        }
        let entries: Vec<_> = entries.iter().map(ProbePoint::from).collect();
        if !entries.is_empty() {
            let attached = self.probe.attach_to_entries(&file, &entries, pids);
            let why = || format!("cannot attach to the launches of {path}");
            self.probe.keep(Some(group), attached.with_context(why)?);
        }
        self.files.enter(library, group);
        self.libraries += 1;
        self.functions += functions.len();
        tracing::info!("{} functions of {path} are probed", functions.len());
        Ok(functions.len())
    }

    /// Probes the memory reports of a framework's allocator.
    fn attach_framework(&mut self, library: &MappedLibrary) -> Result<usize> {
        let path = library.path.display();
        let functions = match library.functions(&self.reader, Layer::Framework) {
            Ok(functions) => functions,
            Err(error) => return self.skip(library, &error),
        };
        let points: Vec<_> = functions.iter().map(ProbePoint::from).collect();
        if points.is_empty() {
            let error = anyhow!(
                "its allocator reports allocations in no known way, so its tensors are not traced; \
                 PyTorch 1.10 or newer and TensorFlow 2.19 do"
            );
            return self.skip(library, &error);
        }
        let attached = self
            .probe
            .attach_tensors(&library.attach_path(), &points, &self.only_pids);
        let why = || format!("cannot attach to the allocator of {path}");
        self.keep(library, attached.with_context(why)?);
        tracing::info!("the allocator of {path} is probed");
        Ok(0)
    }

    /// Attaches to the static probes for requested sizes. Without them, tensors are traced all the
    /// same.
    fn attach_requests(&mut self, library: &MappedLibrary) -> Result<usize> {
        let path = library.path.display();
        let attached = self
            .probe
            .attach_requests(&library.attach_path(), &self.only_pids);
        match attached {
            Ok(attached) => {
                self.keep(library, attached);
            }
            Err(error) => {
                tracing::debug!("{path}: requested sizes are not traced: {error:#}");
                self.files.skip(library);
            }
        }
        Ok(0)
    }

    /// Whether to probe `function`.
    fn wants(&self, function: &Function) -> bool {
        let op = function.op;
        // The runtime's queries call the driver's, which return the same.
        let teaches = self.queries.are_wanted() && function.layer == Layer::Driver;
        op.is_needed_by(self.modes, function.kind)
            && self.api.includes(function)
            && (!op.is_device_query() || teaches)
            && (!op.is_context_call() || self.modes.memleak || !self.one_gpu)
    }

    /// Attaches to the loader's rendezvous; without it, libraries loaded later are found late.
    fn attach_loader(&mut self, library: &MappedLibrary) -> Result<usize> {
        let path = library.path.display();
        let found = match library.rendezvous(&self.reader) {
            Ok(Some(found)) => found,
            Ok(None) => {
                let error =
                    anyhow!("it has no _dl_debug_state, so dlopen in its programs is not noticed");
                return self.skip(library, &error);
            }
            Err(error) => return self.skip(library, &error),
        };
        let point = ProbePoint {
            offset: found.offset,
            cookie: found.to_r_debug.cast_unsigned(),
        };
        let attached = self
            .probe
            .attach_rendezvous(&library.attach_path(), point, &self.only_pids)
            .with_context(|| format!("cannot attach to _dl_debug_state of {path}"))?;
        self.keep(library, attached);
        Ok(0)
    }

    /// Keeps the probes of `library`, which has no others.
    fn keep(&mut self, library: &MappedLibrary, attached: Attached) {
        let group = self.files.next_group();
        self.probe.keep(Some(group), attached);
        self.files.enter(library, group);
    }

    /// Skips a file to which no probe can be attached, now or later, with one warning. Returns an error
    /// if the file could not be read just now.
    fn skip(&mut self, library: &MappedLibrary, why: &Error) -> Result<usize> {
        if why.is::<NotNow>() {
            bail!("{why:#}");
        }
        self.files.skip(library);
        self.warn(&anyhow!(
            "{} is not probed: {why:#}",
            library.path.display()
        ));
        Ok(0)
    }

    /// Prints a warning about a file, up to a maximum number.
    fn warn(&mut self, what: &Error) {
        if self.files.may_warn() {
            tracing::warn!("{what:#}");
        } else {
            tracing::debug!("{what:#}");
        }
    }
}

/// Whether a file is skipped because another user serves its file system.
fn is_foreign(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref();
    cause.is_some_and(mounts::is_foreign)
}
