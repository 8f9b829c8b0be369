//! The probe together with discovery: what is attached where, and attaching to more.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Error, Result, anyhow, bail};

use super::{ApiChoice, Config, Target};
use crate::api::{FUNCTIONS, Function, Layer, Modes, Op};
use crate::discover::instruction::First;
use crate::discover::process::{self, Handle, MappingId};
use crate::discover::{FileId, Library, Likeness, Role, elf, gpus, system};
use crate::privileges;
use crate::probe::{Attached, Point, Probe, Settings, arm64};

/// What came of looking at a process.
#[derive(Debug, Default)]
pub struct Looked {
    /// CUDA functions that are newly probed.
    pub functions: usize,
    /// A library could not be probed, now or before.
    pub incomplete: bool,
    /// Failures that the user has not been told yet.
    pub failures: Vec<Error>,
}

impl Looked {
    /// Tells the user what could not be probed.
    pub fn warn(&self) {
        for failure in &self.failures {
            tracing::warn!("{failure:#}");
        }
    }
}

/// Loaded programs and what they are attached to.
pub struct Tracer {
    // Before `probe`, so that links go first.
    queries: Vec<Attached>,
    /// The kernel side.
    pub probe: Probe,
    api: ApiChoice,
    modes: Modes,
    /// Launches are sent one by one.
    single_launches: bool,
    /// Probes fire in this process only.
    only_pid: Option<i32>,
    attached: HashSet<FileId>,
    /// What they look like, and whether one of them was found through an overlay.
    alike: HashMap<Likeness, bool>,
    looked_at: HashSet<MappingId>,
    warned: HashSet<MappingId>,
    /// The host has one GPU.
    one_gpu: bool,
    /// Device queries are probed: what they answer teaches where threads are that we came to late.
    learns: bool,
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
        arm64::permit(std::env::consts::ARCH, config.allow_arm64)?;
        let is_command = matches!(config.target, Target::Command(_));
        let probe = Probe::load(&Settings {
            only_targets: config.target != Target::Everything,
            follow_children: is_command || config.children,
            hold_targets: is_command,
            launches: config.modes.cudatrace,
            single_launches: config.records_launches(),
            launch_stacks: config.records_launches() && config.modes.activity,
            batches: config.modes.activity,
            ledger: config.modes.memleak,
            stacks: config.stacks,
            kind: config.attach,
            map_entries: config.map_entries.clone(),
        })?;
        let alone = process.filter(|_| !config.children);
        let only_pid = alone.map(|p| i32::try_from(p.pid)).transpose()?;
        let mut tracer = Self {
            probe,
            api: config.api,
            modes: config.modes,
            single_launches: config.records_launches(),
            only_pid,
            attached: HashSet::new(),
            alike: HashMap::new(),
            looked_at: HashSet::new(),
            warned: HashSet::new(),
            one_gpu: gpus::on_host() == Some(1),
            learns: !is_command,
            queries: Vec::new(),
            libraries: 0,
            functions: 0,
        };
        if let Some(process) = process {
            tracer.probe.add_target(process.pid)?;
            let pid = process.pid;
            let looked = tracer
                .look_at(pid)
                .with_context(|| format!("cannot look at the libraries of process {pid}"))
                .map_err(privileges::name_missing)?;
            looked.warn();
            if looked.functions == 0 && looked.incomplete {
                bail!("nothing of process {pid} can be traced");
            }
            if config.children {
                tracer.attach_descendants(pid)?;
            }
        } else {
            tracer.attach_known(config.target == Target::Everything);
        }
        tracer.probe.all_attached()?;
        Ok(tracer)
    }

    /// Traces the living descendants of `pid` too. Those that are born meanwhile are children of
    /// one that is traced already, or are found in another round.
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
                // Nobody will tell of the end of one that has ended already.
                if !Handle::of(pid).is_ok_and(|h| h.is_alive()) {
                    self.probe.remove_target(pid);
                    continue;
                }
                match self.look_at(pid) {
                    Ok(looked) => looked.warn(),
                    Err(error) => tracing::debug!("process {pid}: {error:#}"),
                }
            }
        }
    }

    /// Stops probing device queries. Frameworks ask for the current device thousands of times a
    /// second; after a while every thread has told where it is.
    pub fn stop_learning(&mut self) {
        self.learns = false;
        self.queries.clear();
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
            match self.look_at(pid) {
                Ok(looked) => looked.warn(),
                // Most often it has ended meanwhile.
                Err(error) => tracing::debug!("process {pid}: {error:#}"),
            }
        }
    }

    /// Attaches to what process `pid` has mapped and is not probed yet.
    ///
    /// # Errors
    /// The process cannot be looked at: it has ended, or is another user's.
    pub fn look_at(&mut self, pid: u32) -> Result<Looked> {
        let mut looked = Looked::default();
        loop {
            let before = self.attached.len();
            self.look_once(pid, &mut looked)?;
            // What was mapped while the loader was being attached to is seen now.
            if self.attached.len() == before {
                return Ok(looked);
            }
        }
    }

    fn look_once(&mut self, pid: u32, looked: &mut Looked) -> Result<()> {
        for mapped in process::mapped(pid)? {
            if self.looked_at.contains(&mapped.id) {
                continue;
            }
            match mapped.open().and_then(|library| self.attach(&library)) {
                Ok(functions) => {
                    self.looked_at.insert(mapped.id);
                    looked.functions += functions;
                }
                Err(error) => {
                    looked.incomplete = true;
                    // The same file fails in every process.
                    if self.warned.insert(mapped.id) {
                        looked.failures.push(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Attaches to `library` unless it is probed already. Returns the number of CUDA functions
    /// that are newly probed.
    fn attach(&mut self, library: &Library) -> Result<usize> {
        if !self.attached.insert(library.id) {
            return Ok(0);
        }
        let known = self.alike.get(&library.likeness);
        if known.is_some_and(|&in_overlay| in_overlay || library.in_overlay) {
            let path = library.path.display();
            tracing::debug!("{path} is probed already, through another overlay");
            return Ok(0);
        }
        let attached = match library.role {
            Role::Cuda(layer) => self.attach_cuda(library, layer),
            Role::Loader => self.attach_loader(library),
        };
        if attached.is_err() {
            self.attached.remove(&library.id);
        } else {
            self.alike.insert(library.likeness, library.in_overlay);
        }
        attached
    }

    fn attach_cuda(&mut self, library: &Library, layer: Layer) -> Result<usize> {
        let mut functions = match library.functions(layer) {
            Ok(functions) => functions,
            Err(error) => return Self::leave_alone(library, &error),
        };
        if functions.is_empty() {
            let error = anyhow!("it exports none of the functions that are traced");
            return Self::leave_alone(library, &error);
        }
        functions.retain(|f| self.wants(&FUNCTIONS[usize::from(f.row)]));
        let path = library.path.display();
        if let Some(refused) = beginning(&functions, First::Refused) {
            tracing::warn!(
                "not probed, as the kernel allows no probe on their first instruction: {refused}, \
                 of {path}"
            );
            functions.retain(|f| f.first != First::Refused);
        }
        if let Some(stepped) = beginning(&functions, First::Stepped) {
            tracing::warn!(
                "the kernel cannot emulate the first instruction of {stepped}, of {path}: each \
                 call costs ten times as much as it might, or more"
            );
        }
        let op = |f: &elf::Function| FUNCTIONS[usize::from(f.row)].op;
        let told = |op: Op| self.modes.memleak && op.is_told();
        let only_counted = |op: Op| op.is_launch() && !self.single_launches && !told(op);
        let (entries, calls): (Vec<_>, Vec<_>) = functions
            .iter()
            .partition(|f| only_counted(op(f)) || op(f).is_about_streams());
        let (queries, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|f| op(f).is_device_query());
        let (file, pid) = (library.attach_path(), self.only_pid);
        let calls = points(&calls);
        if !calls.is_empty() {
            let attached = self.probe.attach_calls(&file, &calls, pid);
            let count = calls.len();
            let why = || format!("cannot attach to {count} functions of {path}");
            self.probe.keep(attached.with_context(why)?);
        }
        let queries = points(&queries);
        if !queries.is_empty() {
            let attached = self.probe.attach_calls(&file, &queries, pid);
            let why = || format!("cannot attach to the device queries of {path}");
            self.queries.push(attached.with_context(why)?);
        }
        let entries = points(&entries);
        if !entries.is_empty() {
            let attached = self.probe.attach_to_entries(&file, &entries, pid);
            let why = || format!("cannot attach to the launches of {path}");
            self.probe.keep(attached.with_context(why)?);
        }
        self.libraries += 1;
        self.functions += functions.len();
        tracing::info!("{} functions of {path} are probed", functions.len());
        Ok(functions.len())
    }

    /// Whether `function` is to be probed.
    fn wants(&self, function: &Function) -> bool {
        let op = function.op;
        // Where there is one GPU only, nothing has to tell which. The runtime's queries nest the
        // driver's, which teach the same.
        let teaches = self.learns && function.layer == Layer::Driver;
        op.is_needed_by(self.modes, function.kind)
            && self.api.includes(function)
            && (!op.is_device_query() || (teaches && !self.one_gpu))
    }

    /// Without the loader's rendezvous, libraries that are loaded later are found late.
    fn attach_loader(&mut self, library: &Library) -> Result<usize> {
        let path = library.path.display();
        let found = match library.rendezvous() {
            Ok(Some(found)) => found,
            Ok(None) => {
                let error =
                    anyhow!("without _dl_debug_state, dlopen in its programs is not noticed");
                return Self::leave_alone(library, &error);
            }
            Err(error) => return Self::leave_alone(library, &error),
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
        Ok(0)
    }

    /// A file that no probe fits will not fit later either: said once, and not tried again.
    fn leave_alone(library: &Library, why: &Error) -> Result<usize> {
        tracing::warn!("{} is left alone: {why:#}", library.path.display());
        Ok(0)
    }
}

/// Which of `functions` begin with such an instruction, for messages; `None` if none do.
fn beginning(functions: &[elf::Function], first: First) -> Option<String> {
    const NAMED: usize = 3;
    let found = functions.iter().filter(|f| f.first == first);
    let names: Vec<_> = found.map(|f| f.symbol).collect();
    let some = names[..names.len().min(NAMED)].join(", ");
    match names.len() {
        0 => None,
        1..=NAMED => Some(some),
        count => Some(format!("{some} and {} others", count - NAMED)),
    }
}

fn points(functions: &[elf::Function]) -> Vec<Point> {
    let point = |f: &elf::Function| Point {
        offset: f.offset,
        cookie: u64::from(f.row),
    };
    functions.iter().map(point).collect()
}
